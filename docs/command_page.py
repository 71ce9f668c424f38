"""The page of the command line: every command's --help as the command prints it. `generate.py` writes it.

Takes nothing; returns the page's text.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from ops.cli import main

WIDTH = 100

_HEAD = """\
# Commands

Drawn from the commands by `docs/generate.py`; a test keeps it current. What to do when stands in
[operations.md](operations.md).

- **Exit codes**: 0 done; 1 not done, or not all of it, and a line on stderr says why; 2 called wrongly,
  nothing was done; 130 interrupted (Ctrl-C): what was done is whole, and the command can be run again for
  the rest.
- **Configuration**: `--config FILE`, else `REDISPATCH_CONFIG`, else `./redispatch.yaml`;
  `REDISPATCH_REDIS_URL` and the like override it.
- **`--json`** prints documents on stdout and nothing else; remarks, questions and the progress bar go to
  stderr. The bar is for terminals only, and so are colours.
- **Questions** are asked before dead letters are discarded, a destination is retired or a difference is
  booked. Where nobody can answer, the command wants `--yes`.
- **Completion**: `redispatch completion bash`, `zsh` or `fish` prints what the shell wants; it completes
  commands, options, reasons and the destinations of the configuration.
- **`redispatch COMMAND | head`** and the like end it quietly.
- Passwords in addresses print as `***`. What senders wrote is shown with its control characters escaped.

## What `--json` prints

| command | document |
|---|---|
| `check` | `{valid, faults[], warnings[], memory, summary}`; faults and warnings are `{place, message}`; \
with `--rate` also `need`, see [scaling.md](scaling.md) |
| `send` | `{status, answer}`: what ingest said |
| `status` | `{redis{url}, destinations[], ledger[]}`; a destination is `{name, depth, in_flight, retrying, \
dead_letters, oldest_age_seconds, gate{state, reason, until}, consumers, removed}`, with `--watch` also \
`rate`, deliveries per second since the line before. One that was not seen, since its server in a Cluster \
is away, comes last with nulls and an `error`; `redis` has an `error` when those that were removed are not \
known |
| `ledger` | `{ledger[]}`, each `{destination, accepted, replayed, delivered, duplicate, superseded, died, \
discarded, lost, unaccounted}` |
| `ledger accept` | `{destination, lost, discarded}`: what was booked |
| `dead show`, `list` | an array of `{destination, id, key, reason, error, status, attempts, deliveries, \
first_at, died_at}`; `show` and each line of `export` have `alert`, too, or `alert_base64` when it is no \
text |
| `dead replay`, `discard` | `{dry_run, interrupted, matched, replayed, destinations[]}` (`discarded`), each \
`{name, matched, replayed, gone, full}`; `gone` were moved by somebody else meanwhile |
| `pause`, `resume` | `{destination, state, depth, before{state, reason}}` |
| `retire` | `{destination, moved, left, full, interrupted}` |
| `explain` | `{reading, rules[], alerts[], unknown[]}` |
"""


def commands() -> str:
    """`commands.md`: a heading per command, with its help."""
    return "\n".join([_HEAD, *_told(main, ["redispatch"], None)])


def _told(command: click.Command, path: list[str], above: click.Context | None) -> Iterator[str]:
    settings = command.context_settings | {"terminal_width": WIDTH}
    context = click.Context(command, info_name=path[-1], parent=above, **settings)
    yield f"## {' '.join(path)}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _told(inner, [*path, name], context)
