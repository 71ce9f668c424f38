"""`redispatch explain`: a dry run of one alert or reading, for people or as JSON.

Takes the body of a POST from a file or standard input; needs neither Redis nor a running service.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ops import completion, options
from ops.text import plain, span

if TYPE_CHECKING:
    from common.policy import Slot
    from ingest.route import Looked
    from ops.dry_run import DryRun, Judged, Sent, Told
    from ops.masking import Shown


@click.command()
@options.config_option
@options.json_option
@click.argument("file", shell_complete=completion.files)
def explain(config: str | None, as_json: bool, file: str) -> None:
    """Dry run of one alert or reading: nothing is sent.

    FILE holds what would be posted to /v1/alerts or /v1/readings; - is standard input. Shows incident, key,
    rules, routes, the request to each destination and when it would be tried again. Exit code 0; 1 when
    FILE can't be read or ingest would refuse what it holds.
    """
    import msgspec

    from ops.dry_run import NotOne, dry_run

    settings = options.settings(config)
    body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        told = dry_run(settings, body, time.time_ns() // 1_000_000)
    except NotOne as fault:
        where = "standard input" if file == "-" else file
        raise click.ClickException(f"{where}: {plain(str(fault))}") from fault
    encoded = msgspec.json.encode(told, enc_hook=float)  # durations and rates are floats, which it can't know
    click.echo(msgspec.json.format(encoded) if as_json else "\n".join(lines(told)))


def lines(told: DryRun) -> Iterator[str]:
    """The same for people."""
    if told.reading is not None:
        reading = told.reading
        yield f"reading      {plain(reading.metric)} = {reading.value} of {plain(reading.host)}"
        yield from map(_rule, told.rules)
        if not told.alerts:
            yield "no alert comes of it; the reading is stored"
    for alert in told.alerts:
        yield from _alert(alert)
    yield ""
    yield "not known without Redis:"
    yield from (f"  - {each}" for each in told.unknown or ["nothing"])


def _rule(judged: Judged) -> str:
    says = judged.verdict.value if judged.verdict is not None else f"says nothing: {plain(judged.because)}"
    return f"rules[{judged.index}]     {judged.name}: {says}"


def _alert(told: Told) -> Iterator[str]:
    yield f"incident     {told.incident}"
    yield f"key          {told.key}"
    yield f"status       {told.status}, severity {plain(told.alert.severity or 'none')}"
    yield from map(_route, told.routes)
    if not told.destinations:
        yield "no route takes it: ingest would answer 400"
    for sent in told.destinations:
        yield ""
        yield from _sent(sent)


def _route(looked: Looked) -> str:
    to = f"routes[{looked.index}]    to {', '.join(looked.to)}: "
    if not looked.field:
        return to + ("matches, and goes on" if looked.goes_on else "matches")
    told = "absent" if looked.told is None else plain(looked.told)
    return f"{to}no, {plain(looked.field)} is {told}, not {plain(' or '.join(looked.wanted) or 'anything')}"


def _sent(sent: Sent) -> Iterator[str]:
    yield f"destination  {sent.name} ({sent.type})"
    if sent.request is not None:
        yield from _request(sent.request)
    else:
        yield f"  {plain(sent.note)}"
    if sent.follow_ups:
        yield f"  what it makes of it goes on to {', '.join(sent.follow_ups)}"
    yield from _limits(sent)
    yield (
        f"  retries: {sent.attempts} attempts (preset {sent.preset}), waits of at most {span(sent.cap)}, "
        f"none after {span(sent.max_age)}; a Retry-After of up to {span(sent.retry_after_cap)} comes on top"
    )
    yield "    attempt  waits up to  earliest    expected      latest"
    yield from (_slot(slot, sent) for slot in sent.timeline)
    yield f"  given up at the latest {span(sent.ends_by)} after the first attempt began"


def _limits(sent: Sent) -> Iterator[str]:
    rate = "no limit of rate" if sent.rate is None else f"{sent.rate!s} in the whole fleet"
    yield f"  attempts: at most {span(sent.timeout)} each, {sent.max_in_flight} at once per replica, {rate}"
    if sent.batch is not None:
        by = f" that agree in {', '.join(sent.batch.by)}" if sent.batch.by else ""
        yield f"  batch: up to {sent.batch.max} alerts{by}, in {span(sent.batch.wait)}; above is one alone"
    yield f"  gate: closes after {sent.breaker.failures} failures in a row, for {span(sent.breaker.open)}"


def _slot(slot: Slot, sent: Sent) -> str:
    times = (slot.wait, slot.earliest, slot.expected, slot.latest)
    wait, earliest, expected, latest = map(span, times)
    row = f"    {slot.attempt:>7}  {wait:>11}  {earliest:>8}  {expected:>10}  {latest:>10}"
    notes = ["cap"] if slot.capped else []
    if slot.expected > sent.max_age:
        notes.append("mostly later than max_age, and not made")
    elif not slot.within:
        notes.append("may be later than max_age, and not made")
    return f"{row}  {', '.join(notes)}".rstrip()


def _request(request: Shown) -> Iterator[str]:
    yield f"  {request.method} {request.url or '(the type does not tell where)'}"
    yield from (f"  {name}: {plain(value)}" for name, value in request.headers.items())
    yield ""
    yield from (f"  {plain(line)}" for line in request.body.split("\n"))
    yield ""
