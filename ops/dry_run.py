"""What would come of one alert or reading: the way from parse to a request, without Redis or a network.

Takes settings and the body of a POST; returns structs that are also the command's JSON. It runs the code that
ingest and the dispatcher run. Raises NotOne for a body that is no single alert or reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from common.alert import Alert, Status
from common.policy import Slot, retry_policy
from common.settings import Batch, Breaker, Destination, Rule, Settings
from dispatcher.destinations import kinds
from dispatcher.destinations.base import Delivery, Request, Unrenderable, Unusable
from ingest.event import Event, Reading
from ingest.formats import native
from ingest.formats.bodies import BadBody, Kind, Parsed
from ingest.observe import own_key
from ingest.route import Looked, Router
from ingest.rules import Rules, Verdict
from ops.masking import Shown, shown

T = TypeVar("T")


class NotOne(ValueError):
    """The body isn't one alert or reading; the text says why."""


class Judged(Struct, frozen=True):
    """A rule, and what it says of the reading; `because` when it says nothing."""

    index: int
    name: str
    verdict: Verdict | None
    because: str = ""


class Sent(Struct, frozen=True):
    """What one destination would get, and how hard it would be tried. Times in seconds, rates per second;
    `follow_ups` are the destinations of what it makes of the alert."""

    name: str
    type: str
    request: Shown | None
    note: str
    timeout: float
    max_in_flight: int
    rate: float | None
    batch: Batch | None
    breaker: Breaker
    preset: str
    attempts: int
    base: float
    cap: float
    max_age: float
    retry_after_cap: float
    timeline: list[Slot]
    ends_by: float
    follow_ups: list[str]


class Told(Struct, frozen=True):
    """One alert; `alert` is its stored form."""

    incident: str
    key: str
    status: Status
    alert: Alert
    routes: list[Looked]
    destinations: list[Sent]


class DryRun(Struct, frozen=True):
    """`unknown` is what only Redis could tell."""

    reading: Reading | None
    rules: list[Judged]
    alerts: list[Told]
    unknown: list[str]


def dry_run(settings: Settings, body: bytes, now: int) -> DryRun:
    """What would come of a body that is posted at `now`, ms. Raises NotOne."""
    limit = int(settings.ingest.max_alert)
    reading, rules = None, []
    if _is_reading(body):
        reading = _single(native.readings, body, now, limit)
        rules = list(_judged(settings.rules, reading))
        events = [event for rule in settings.rules for event in _events(rule, reading)]
    else:
        events = [_single(native.alerts, body, now, limit)]
    alerts = [_told(settings, event.alert, now) for event in events]
    return DryRun(reading, rules, alerts, list(_unknown(settings, rules, [each.alert for each in alerts])))


class _Fields(Struct):
    name: object = None
    metric: object = None


def _is_reading(body: bytes) -> bool:
    try:
        fields = msgspec.json.decode(body, type=_Fields)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False  # and the format says what is wrong with it
    return fields.metric is not None and fields.name is None


def _single(read: Callable[[bytes, Kind, int, int], Parsed[T]], body: bytes, now: int, limit: int) -> T:
    try:
        parsed = read(body, Kind.JSON, now, limit)
    except BadBody as fault:
        raise NotOne(fault.detail) from None
    found = len(parsed.items) + len(parsed.rejected)
    if found != 1:
        raise NotOne(f"holds {found} items; explain takes one")
    if parsed.rejected:
        raise NotOne(parsed.rejected[0].error)
    return parsed.items[0][1]


def _judged(rules: Sequence[Rule], reading: Reading) -> Iterator[Judged]:
    for index, rule in enumerate(rules):
        for judgement in Rules([rule]).judge(reading):
            yield Judged(index, rule.name, judgement.verdict)
            break
        else:
            yield Judged(index, rule.name, None, _silent(rule, reading))


def _silent(rule: Rule, reading: Reading) -> str:
    if rule.metric != reading.metric:
        return f"is about the metric {rule.metric}"
    for label, wanted in rule.labels.items():
        if reading.labels.get(label, "") != wanted:
            return f"wants the label {label}={wanted}"
    return f"{reading.value} is not {rule.when}"


def _events(rule: Rule, reading: Reading) -> Iterator[Event]:
    """As if no episode were open for what fires, and one since the reading for what clears."""
    for judgement in Rules([rule]).judge(reading):
        at = reading.timestamp
        if judgement.verdict is Verdict.CLEARS:
            yield judgement.event(at, at)
        elif judgement.verdict is Verdict.FIRES:
            yield judgement.event(None if rule.clear is None else at)


def _told(settings: Settings, alert: Alert, now: int) -> Told:
    alert = replace(alert, key=own_key(alert, settings.dedupe.window.ms))
    router = Router(settings)
    named = {destination.name: destination for destination in settings.destinations}
    sent = [_sent(named[name], alert, now) for name in router.destinations(alert)]
    return Told(alert.incident, alert.key, alert.status, alert, router.looked_at(alert), sent)


def _sent(destination: Destination, alert: Alert, now: int) -> Sent:
    request, note = _request(destination, alert, now)
    policy = retry_policy(destination)
    timeline = policy.timeline(destination.timeout)
    return Sent(
        name=destination.name,
        type=destination.type,
        request=request,
        note=note,
        timeout=destination.timeout,
        max_in_flight=destination.max_in_flight,
        rate=destination.rate,
        batch=destination.batch,
        breaker=destination.breaker,
        preset=destination.retry.preset,
        attempts=policy.attempts,
        base=policy.base,
        cap=policy.cap,
        max_age=policy.max_age,
        retry_after_cap=destination.retry_after_cap,
        timeline=timeline,
        ends_by=timeline[-1].latest + destination.timeout,
        follow_ups=list(destination.follow_ups),
    )


def _request(destination: Destination, alert: Alert, now: int) -> tuple[Shown | None, str]:
    """The first attempt's, or why there is none."""
    delivery = Delivery(entry_id="0-0", deliveries=1, key=alert.key, alert=alert, attempt=1, first_at=now)
    try:
        one = kinds.make(destination)
        build: Callable[[Sequence[Delivery]], Request] | None = getattr(one, "request", None)
        if build is None:
            return None, f"the type {destination.type} does not tell what it sends"
        return shown(destination, one, build([delivery])), ""
    except Unusable as fault:
        return None, str(fault)
    except Unrenderable as fault:
        return None, f"the request can't be built, and the delivery would die as `render`: {fault}"


def _unknown(settings: Settings, rules: Sequence[Judged], alerts: Sequence[Alert]) -> Iterator[str]:
    met = [rule for rule in rules if rule.verdict in (Verdict.FIRES, Verdict.CLEARS)]
    if any(settings.rules[rule.index].clear is not None for rule in met):
        yield (
            "whether an episode of the rule is open: what fires makes an alert only when none is, "
            "what clears only when one is, and its start is in the key and in starts_at"
        )
    if not alerts:
        return
    remember = settings.dedupe.remember
    yield f"whether it is a duplicate: a key told within {remember} is answered with 200 and not sent again"
    if any(alert.status is Status.RESOLVED for alert in alerts):
        yield (
            "the episode that a resolution ends: it takes the severity from there when it has none, its key "
            "is that of the first resolution told, and it also goes to every destination of its firing"
        )
    elif any(alert.starts_at is None for alert in alerts):
        yield "how many resolutions of the incident came before in its window: :1, :2 ... in the key"
    yield "gates, free slots and the tokens of a rate: what waits for them spends no attempt, but grows older"
