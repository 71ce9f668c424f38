"""`python -m ops` is `redispatch`."""

from ops.cli import main

main()
