"""What an operator runs: the `redispatch` command, the embedded server, dead letters."""
