"""The pages drawn from the protocol: states, keys, scripts and metrics. `generate.py` writes them.

Each function takes nothing and returns a page's text. Raises ValueError for a docstring that it can't read.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from common import keys as keys_page
from common.settings import Destination, Settings
from common.snapshot import Ledger, Snapshot
from common.states import MEANING, TABLE, Event, State
from dispatcher.canary import Figures
from dispatcher.measure import Queues
from dispatcher.metrics import Metrics as DispatcherMetrics
from ingest.metrics import Metrics as IngestMetrics
from ingest.serve import PATHS
from ops.console.metrics import Metrics as ConsoleMetrics
from ops.console.site import PATHS as CONSOLE_PATHS

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ingest", "dispatcher", "common", "ops")  # in the order of the way
_CURRENT = "by `docs/generate.py`; a test keeps it current."

_STATES = f"""\
# States of a delivery

Drawn from `common/states.py` {_CURRENT}

The state stands in the delivery's record (`record:<key>` in [keys.md](keys.md)); the scripts make the
moves. A move that is not in this table is a bug, and the tests of the protocol hold every move that they
see against it. `absent` means that there is no record.

| state | what it means, who moves it on, what a crash leaves |
|---|---|"""
_KEYS = f"""\
# Keys

Drawn from `common/keys.py` {_CURRENT}

`<namespace>` is `redis.namespace`. What stands between the braces decides about the slot in a Cluster, so
that all keys of one destination are in one slot and one script sees them all. All times are the server's,
in ms. Writers and readers are scripts ([scripts.md](scripts.md)) and commands.

| key | type | holds | written by | read by | TTL |
|---|---|---|---|---|---|"""
_SCRIPTS = f"""\
# Scripts

The headers of the Lua files, collected {_CURRENT}

One file per operation; each call is atomic and declares all its keys, which in a Cluster are in one slot.
A script checks first, adds second, removes third: Lua does not roll back, and one that fails half-way may
double, never lose. What brings something in is refused at `maxmemory`; all others run, and the queue drains
([0002](decisions/0002-refused-at-maxmemory.md)).
"""
_METRICS = f"""\
# Metrics

Drawn from the registries of the services {_CURRENT}

`/metrics` of each service shows its own. Label values are closed sets that exist from the start; nothing
that a sender controls becomes one. The values of `destination` are the names in the configuration.
"""
_QUEUE = """
The same on every dispatcher, from one snapshot per destination and second: aggregate with `max`, not `sum`.
"""


class Key(NamedTuple):
    """What a docstring of `common/keys.py` says."""

    name: str
    pattern: str
    type: str
    holds: str
    writers: list[str]
    readers: list[str]
    ttl: str


def states() -> str:
    """`states.md`: meanings, moves as a table, and the same as a diagram."""
    lines = [_STATES, *(f"| `{state}` | {MEANING[state]} |" for state in State), ""]
    lines += [
        "| event | " + " | ".join(f"`{state}`" for state in State) + " |",
        "|---" * (len(State) + 1) + "|",
    ]
    for event in Event:
        moves = (TABLE.get((state, event)) for state in State)
        lines.append(f"| {event} | " + " | ".join(f"`{to}`" if to else "" for to in moves) + " |")
    lines += ["", "```mermaid", "stateDiagram-v2", *_arrows(), "```", ""]
    return "\n".join(lines)


def _arrows() -> Iterator[str]:
    """One per pair of states; expiry comes last."""
    events: dict[tuple[State, State], list[Event]] = {}
    for (state, event), to in TABLE.items():
        if event is not Event.EXPIRE:
            events.setdefault((state, to), []).append(event)
    yield f"    [*] --> {State.ABSENT}"
    for (state, to), labels in events.items():
        yield f"    {state} --> {to}: {' / '.join(labels)}"
    for state, event in TABLE:
        if event is Event.EXPIRE:
            yield f"    {state} --> {State.ABSENT}: {event}"


def keys() -> str:
    """`keys.md`: one row per function."""
    rows = (
        f"| `{key.pattern}` | {key.type} | {key.holds} | {', '.join(key.writers)} | {', '.join(key.readers)} "
        f"| {key.ttl} |"
        for key in described_keys()
    )
    return "\n".join([_KEYS, *rows, ""])


_DESCRIBED = re.compile(
    r"(?P<type>[a-z ]+): (?P<holds>.+?)\. "
    r"Written by (?P<writers>[^;.]+); read by (?P<readers>[^;.]+)\. (?:No TTL|TTL (?P<ttl>.+))\."
)


def described_keys() -> list[Key]:
    """Every key of `common/keys.py`, in the page's order. Raises ValueError for one that is not described."""
    functions = inspect.getmembers(keys_page, inspect.isfunction)
    made = [function for name, function in functions if name != "tag"]
    return [_key(function) for function in sorted(made, key=lambda one: one.__code__.co_firstlineno)]


def _key(function: Callable[..., str]) -> Key:
    told = _DESCRIBED.fullmatch(" ".join((function.__doc__ or "").split()))
    if told is None:
        raise ValueError(f"common/keys.py: {function.__name__} does not say type, writers, readers and TTL")
    names = inspect.signature(function).parameters
    pattern = function(**{name: f"<{name}>" for name in names})
    pattern = re.sub(r":i:[0-9a-f]{2}}", ":i:<hash>}", pattern)
    writers, readers = (told[part].split(", ") for part in ("writers", "readers"))
    return Key(
        function.__name__, pattern, told["type"], told["holds"], writers, readers, told["ttl"] or "none"
    )


def scripts() -> str:
    """`scripts.md`: a heading per Lua file with its header."""
    return "\n".join([_SCRIPTS, *(part for path in script_files() for part in _script(path))])


def script_files() -> list[Path]:
    """All Lua files, in the order of the way."""
    return [path for package in PACKAGES for path in sorted((ROOT / package / "lua").glob("*.lua"))]


def _script(path: Path) -> Iterator[str]:
    head = header(path.read_text("utf-8"))
    oom = "runs at `maxmemory`" if "allow-oom" in head[0] else "refused at `maxmemory`"
    text = [line.removeprefix("--").removeprefix(" ") for line in head[1:]]
    yield f"## {path.relative_to(ROOT)}\n\n{oom}\n\n```text"
    yield from text
    yield "```\n"


def header(text: str) -> list[str]:
    """The shebang and the comment below it."""
    lines = text.split("\n")
    end = next(n for n, line in enumerate(lines) if n and not line.startswith("--"))
    return lines[:end]


def metrics() -> str:
    """`metrics.md`: a table per service, and one for what both look at."""
    ingest = IngestMetrics(PATHS).registry
    dispatcher = DispatcherMetrics()
    dispatcher.add("pager")
    Figures(dispatcher.registry).configure(["pager"])
    console = ConsoleMetrics(CONSOLE_PATHS).registry
    queue = CollectorRegistry()
    queues = Queues(queue)
    queues.configure(Settings(destinations=[Destination(name="pager", type="discard")]))
    nothing = Snapshot(
        destination="pager",
        now=0,
        waiting=0,
        retrying=0,
        dead_letters=0,
        in_flight=0,
        consumers=0,
        groups=1,
        oldest_at=None,
        next_due=None,
        gate={},
        ledger=Ledger(),
    )
    queues.show(nothing)
    parts = [_METRICS, "## Ingest\n", *_table(ingest), "## Dispatcher\n", *_table(dispatcher.registry)]
    parts += ["## Console\n", *_table(console)]
    return "\n".join([*parts, "## The queue, shown by the dispatcher", _QUEUE, *_table(queue)])


def _table(registry: CollectorRegistry) -> Iterator[str]:
    yield from ("| metric | type | labels | meaning |", "|---|---|---|---|")
    for family in sorted(registry.collect(), key=lambda family: family.name):
        total = "_total" if family.type == "counter" else ""
        labels: dict[str, list[str]] = {}
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label != "le" and value not in labels.setdefault(label, []):
                    labels[label].append(value)
        told = "; ".join(_label(label, values) for label, values in labels.items())
        yield f"| `{family.name}{total}` | {family.type} | {told} | {family.documentation} |"
    yield ""


def _label(name: str, values: Iterable[str]) -> str:
    return f"`{name}`" if name == "destination" else f"`{name}`: {', '.join(f'`{v}`' for v in values)}"
