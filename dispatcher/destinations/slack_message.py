"""What slack posts: takes alerts, returns a message of Block Kit. Pure, within Slack's limits for any alert.

Slack takes 50 blocks, 10 fields in one, 3,000 characters in a section, 2,000 in a field, and cuts `text` at
40,000; 4,000 are advised. Texts of alerts are escaped and parsed no further (`verbatim`), so that nothing in
them is a link, a channel or a mention.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from common.alert import Alert, Status
from dispatcher.destinations.payload import rfc3339
from dispatcher.destinations.wording import NAMELESS, SEVERITIES, cut, line, severity, state, subject

Block: TypeAlias = dict[str, Any]

_LONGEST = 40_000
_TEXT = 300  # characters of `text`, which is what a phone's notification shows
_SECTION = 2900
_SUMMARISED = 2000
_NAME = 256
_URL = 1024  # a longer one is left out: half a link is none
_LABELS, _LABEL = 10, 100
# Of a batch: alerts, characters of a summary, and of all of them together.
_SHOWN, _MEMBER, _MEMBERS = 20, 300, 12_000

_EMOJI = {
    "info": ":information_source:",
    "warning": ":warning:",
    "error": ":red_circle:",
    "critical": ":rotating_light:",
}
_RESOLVED = ":white_check_mark:"
_GROUPS = re.compile(r"@(?=(?:channel|here|everyone)\b)", re.IGNORECASE)
_HALF_ENTITY = re.compile(r"&[a-z]*$")
_UNSAFE_IN_LINKS = re.compile(r"[^!-~]|[<>|\"]")


def message(alert: Alert) -> dict[str, Any]:
    """The message of one alert."""
    blocks = [_section(_headline(alert))]
    told = (alert.summary, _by_a_model(alert), alert.annotations.get("description"))
    blocks += [_section(escaped(text, _SECTION)) for text in dict.fromkeys(told) if text and text.strip()]
    blocks.append({"type": "section", "fields": [_mrkdwn(field) for field in _fields(alert)]})
    if alert.labels:
        blocks.append(_context(_labels(alert)))
    summary = f": {alert.summary}" if alert.summary else ""
    return _message(f"{state(alert)} {subject(alert, _NAME)}{summary}", blocks)


def batch_message(alerts: Sequence[Alert]) -> dict[str, Any]:
    """One message of several: the most severe that fit, in the order given, and how many are not shown."""
    firing = sum(alert.status is Status.FIRING for alert in alerts)
    title = f"{len(alerts)} alerts: {firing} firing, {len(alerts) - firing} resolved"
    members = _shown(alerts)
    blocks = [_section(f"*{title}*"), *map(_section, members)]
    if missing := len(alerts) - len(members):
        blocks.append(_context(f"… and {missing} more, not shown"))
    return _message(f"{title}; {'; '.join(subject(alert, 60) for alert in alerts[:_SHOWN])}", blocks)


def text_message(text: str) -> dict[str, Any]:
    """A message that somebody's template made, in Slack's own markup."""
    return {"text": cut(text, _LONGEST)}


def harmless(value: Any) -> Any:
    """What a template is given, with every text in it escaped."""
    if isinstance(value, str):
        return escaped(value, _SECTION)
    if isinstance(value, dict):
        return {escaped(name, _SECTION): harmless(inner) for name, inner in value.items()}
    return [harmless(inner) for inner in value] if isinstance(value, list) else value


def escaped(text: str, most: int) -> str:
    """A text that Slack shows as it is, up to so many characters once it is escaped."""
    plain = _GROUPS.sub("@\u200b", cut(text, most))  # a space without width: no mention, whatever parses it
    safe = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    short = cut(safe, most)
    return safe if short == safe else _HALF_ENTITY.sub("", short[:-1]) + "…"


def _shown(alerts: Sequence[Alert]) -> list[str]:
    left = _MEMBERS
    shown: dict[int, str] = {}
    for place in sorted(range(len(alerts)), key=lambda place: _weight(alerts[place]), reverse=True)[:_SHOWN]:
        text = _member(alerts[place])
        left -= len(text)
        if left < 0:
            break
        shown[place] = text
    return [shown[place] for place in sorted(shown)]


def _weight(alert: Alert) -> tuple[bool, int]:
    return alert.status is Status.FIRING, SEVERITIES.index(severity(alert))


def _member(alert: Alert) -> str:
    summary = escaped(line(alert.summary or "", _MEMBER), _MEMBER)
    return f"{_headline(alert)}\n{summary}" if summary else _headline(alert)


def _headline(alert: Alert) -> str:
    emoji = _RESOLVED if alert.status is Status.RESOLVED else _EMOJI[severity(alert)]
    name = escaped(line(alert.name, _NAME), _NAME) or NAMELESS
    url = _link(alert.url)
    host = f" on *{escaped(line(alert.host, _NAME), _NAME)}*" if alert.host.strip() else ""
    return f"{emoji} *{escaped(state(alert), _NAME)}* *{f'<{url}|{name}>' if url else name}*{host}"


def _link(url: str | None) -> str | None:
    """An http address that fits and can't end the link it stands in."""
    if not url or len(url) > _URL or not url.lower().startswith(("http://", "https://")):
        return None
    safe = _UNSAFE_IN_LINKS.sub(_percent, url).replace("&", "&amp;")
    return safe if len(safe) <= _URL else None


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode(errors="replace"))


def _by_a_model(alert: Alert) -> str | None:
    """What a destination of type summary made of the alert, and who wrote it."""
    text, by = alert.annotations.get("ai_summary"), alert.annotations.get("ai_summary_by")
    return f"{text[:_SUMMARISED]}\n— {by}" if text and by else text


def _fields(alert: Alert) -> Iterator[str]:
    if alert.value is not None:
        yield f"*Value*\n{alert.value}"
    if alert.status is Status.FIRING:
        yield f"*Since*\n{_time(alert.since)}"
        return
    if alert.severity:
        yield f"*Was*\n{escaped(line(alert.severity, _NAME), _NAME)}"
    if alert.starts_at is not None:
        yield f"*Since*\n{_time(alert.starts_at)}"
    yield f"*Until*\n{_time(alert.since)}"


def _time(ms: int) -> str:
    """In the reader's own time zone; what can't show that shows UTC."""
    return f"<!date^{ms // 1000}^{{date_short_pretty}} {{time_secs}}|{rfc3339(ms)}>"


def _labels(alert: Alert) -> str:
    shown = sorted(alert.labels.items())[:_LABELS]
    texts = [escaped(line(f"{name}={value}", _LABEL), _LABEL) for name, value in shown]
    more = len(alert.labels) - len(shown)
    return " · ".join([*texts, f"… and {more} more"] if more else texts)


def _message(text: str, blocks: list[Block]) -> dict[str, Any]:
    return {"text": escaped(line(text, _TEXT), _TEXT), "blocks": blocks}


def _section(text: str) -> Block:
    return {"type": "section", "text": _mrkdwn(text)}


def _context(text: str) -> Block:
    return {"type": "context", "elements": [_mrkdwn(text)]}


def _mrkdwn(text: str) -> Block:
    return {"type": "mrkdwn", "text": text, "verbatim": True}
