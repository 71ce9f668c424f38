"""Last step of loading: what a field's type can't tell, and what fields say of each other.

Takes the settings and adds to the report; what `convert.py` found faulty has a stand-in here, and a second
fault at the same place is dropped by the report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from common import redis_url
from common.condition import Condition
from common.expression import compiled
from common.faults import Path, Report, suggestion
from common.kinds import Kinds
from common.policy import retry_policy
from common.settings import Destination, Hook, HookAlert, HookReading, Rule, Settings, Token, Visitor
from common.units import Address, Duration

RESERVED = {"readings": "the stream of readings", "tokens": "the rates of senders"}  # {<namespace>:...}
ANONYMOUS = "anonymous"  # in keys, in the place of a token's name
_NOTHING = sha256(b"").hexdigest()


def check(settings: Settings, kinds: Kinds | None, report: Report) -> None:
    """Report everything that does not fit together."""
    _redis(settings, report)
    _listening(settings, report)
    _console(settings, report)
    _tokens(settings.tokens, ("tokens",), report)
    _tokens(settings.console.tokens, ("console", "tokens"), report)
    _times(settings, report)
    _sizes(settings, report)
    _unique(("rules",), [rule.name for rule in settings.rules], report)
    _unique(("destinations",), [destination.name for destination in settings.destinations], report)
    for index, rule in enumerate(settings.rules):
        _rule(rule, ("rules", index), report)
    _unique(("hooks",), [hook.name for hook in settings.hooks], report)
    for index, hook in enumerate(settings.hooks):
        _hook(hook, ("hooks", index), report)
    for index, destination in enumerate(settings.destinations):
        _destination(destination, ("destinations", index), report)
        for path, fault in kinds.faults(destination) if kinds is not None else ():
            report.fault(("destinations", index, *path), fault)
    _routes(settings, report)
    _follow_ups(settings, report)


def _redis(settings: Settings, report: Report) -> None:
    try:
        redis_url.parse(settings.redis.url)
    except ValueError as fault:
        report.fault(("redis", "url"), str(fault))


def _listening(settings: Settings, report: Report) -> None:
    """Not whether ingest and the console may listen there: they ask that themselves; others do not care."""
    for section in ("ingest", "dispatcher", "console"):
        try:
            Address.parse(getattr(settings, section).listen)
        except ValueError as fault:
            report.fault((section, "listen"), str(fault))
    if settings.tokens and settings.ingest.allow_anonymous:
        report.fault(("ingest", "allow_anonymous"), "contradicts tokens, without which nobody may send then")


def _console(settings: Settings, report: Report) -> None:
    console = settings.console
    if console.tokens and console.allow_anonymous:
        report.fault(("console", "allow_anonymous"), "contradicts tokens, without which nobody gets in then")
    for index, host in enumerate(console.hosts):
        if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", host):
            report.fault(("console", "hosts", index), "expected a name without scheme, port and path")


def _tokens(tokens: Sequence[Token | Visitor], where: Path, report: Report) -> None:
    _unique(where, [token.name for token in tokens], report)
    seen: dict[str, str] = {}
    for index, token in enumerate(tokens):
        path: Path = (*where, index, "sha256")
        digest = token.sha256.reveal().lower()
        if token.name == ANONYMOUS:
            report.fault((*where, index, "name"), f"{ANONYMOUS} is reserved for those without a token")
        if not re.fullmatch("[0-9a-f]{64}", digest):
            report.fault(path, "expected 64 hexadecimal digits, as `printf %s TOKEN | sha256sum` prints them")
        elif digest == _NOTHING:
            report.fault(path, "is the hash of nothing: was the token empty?")
        elif digest in seen:
            report.fault(path, f"is the token of {seen[digest]}, too")
        seen.setdefault(digest, token.name)


def _times(settings: Settings, report: Report) -> None:
    for section, names in {
        "redis": ("timeout",),
        "ingest": ("durability_timeout",),
        "dispatcher": ("visibility_timeout",),
        "console": ("session",),
        "dedupe": ("window", "remember", "repeat_interval"),
    }.items():
        _above_zero(getattr(settings, section), names, (section,), report)
    every = settings.canary.every
    if every is not None and not 1 <= every <= 60:
        report.fault(("canary", "every"), "expected 1s to 1m: the alarm counts on one a minute")
    dedupe = settings.dedupe
    for name in ("window", "repeat_interval"):
        if dedupe.remember < getattr(dedupe, name):
            report.fault(
                ("dedupe", name),
                f"is longer than dedupe.remember ({dedupe.remember}): "
                "repeats would be forgotten, and sent again",
            )


def _above_zero(section: object, names: Iterable[str], path: Path, report: Report) -> None:
    for name in names:
        value: Duration | None = getattr(section, name)
        if value is not None and value.ms < 1:
            report.fault((*path, name), "expected at least 1ms")


def _sizes(settings: Settings, report: Report) -> None:
    ingest = settings.ingest
    for name in ("max_body", "max_alert"):
        if getattr(ingest, name) < 1:
            report.fault(("ingest", name), "expected at least 1 byte")
    if ingest.max_alert > ingest.max_body:
        report.fault(("ingest", "max_alert"), f"is larger than ingest.max_body ({ingest.max_body})")


def _unique(where: Path, names: Sequence[str], report: Report) -> None:
    section = ".".join(map(str, where))
    for index, name in enumerate(names):
        if name and name in names[:index]:
            report.fault(
                (*where, index, "name"), f"{name} is the name of {section}[{names.index(name)}], too"
            )


def _rule(rule: Rule, path: Path, report: Report) -> None:
    conditions = []
    for name, text in (("when", rule.when), ("clear", rule.clear)):
        try:
            conditions += [Condition.parse(text)] if text is not None else []
        except ValueError as fault:
            report.fault((*path, name), str(fault))
    if len(conditions) == 2 and conditions[0].overlaps(conditions[1]):
        report.fault((*path, "clear"), f"a value could fulfil both clear and when ({rule.when})")


def _hook(hook: Hook, path: Path, report: Report) -> None:
    if (hook.alert is None) == (hook.reading is None):
        report.fault(path, "expected either alert or reading")
    if hook.items is not None:
        _expression(hook.items, (*path, "items"), report)
    for part, told in (("alert", hook.alert), ("reading", hook.reading)):
        if told is not None:
            _expressions(told, (*path, part), report)
    told = hook.alert or hook.reading
    for field in hook.values if told is not None else ():
        if not isinstance(getattr(told, field, None), str):
            report.fault((*path, "values", field), f"there is no expression for {field}")


def _expressions(told: HookAlert | HookReading, path: Path, report: Report) -> None:
    for field in told.__struct_fields__:
        value: str | dict[str, str] | None = getattr(told, field)
        if isinstance(value, str):
            _expression(value, (*path, field), report)
        for name, text in value.items() if isinstance(value, dict) else ():
            _expression(text, (*path, field, name), report)


def _expression(text: str, path: Path, report: Report) -> None:
    try:
        compiled(text)
    except ValueError as fault:
        report.fault(path, str(fault))


def _destination(destination: Destination, path: Path, report: Report) -> None:
    if destination.name in RESERVED:
        report.fault((*path, "name"), f"{destination.name} is reserved for {RESERVED[destination.name]}")
    _above_zero(destination, ("timeout",), path, report)
    _above_zero(destination.retry, ("base", "cap", "max_age"), (*path, "retry"), report)
    _above_zero(destination.breaker, ("open",), (*path, "breaker"), report)
    if destination.retry_after_cap < 1:
        report.fault((*path, "retry_after_cap"), "expected at least 1s")
    policy = retry_policy(destination)
    if policy.base > policy.cap:
        preset = f"what is not given comes from the preset {destination.retry.preset}"
        report.fault(
            (*path, "retry"),
            f"base ({Duration(policy.base)}) is longer than cap ({Duration(policy.cap)}); {preset}",
        )
    if destination.batch is not None and destination.batch.wait >= policy.max_age:
        report.fault((*path, "batch", "wait"), f"is not shorter than retry.max_age ({policy.max_age})")


def _routes(settings: Settings, report: Report) -> None:
    known = [destination.name for destination in settings.destinations]
    for index, route in enumerate(settings.routes):
        for place, name in enumerate(route.to):
            if name not in known:
                report.fault(
                    ("routes", index, "to", place),
                    f"no destination is called {name}{suggestion(name, known)}",
                )


def _follow_ups(settings: Settings, report: Report) -> None:
    """What a destination makes goes to destinations that exist, and never back to where it came from."""
    leads_to = {destination.name: destination.follow_ups for destination in settings.destinations}
    for index, destination in enumerate(settings.destinations):
        for place, name in enumerate(destination.follow_ups):
            path = ("destinations", index, "then", place)
            if name not in leads_to:
                report.fault(path, f"no destination is called {name}{suggestion(name, leads_to)}")
            elif destination.name in _reached(name, leads_to):
                report.fault(path, f"is a cycle: what goes to {name} comes back to {destination.name}")


def _reached(start: str, leads_to: Mapping[str, Sequence[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += leads_to.get(name, ())
    return found
