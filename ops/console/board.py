"""The board: the text of every figure on the pages, by name, as the server has it and the browser puts it.

Takes what was seen; returns texts: `pager/depth`, `all/ledger`. So there is one place where figures become
texts, and what is sent to a browser is what has changed. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from common.snapshot import Snapshot
from ops.console.track import Track
from ops.tables import Seen
from ops.text import age, count, moment, plain

Board: TypeAlias = dict[str, str]


NAMED = 5  # of those that were not seen, in one sentence


def board(
    seen: Sequence[Seen],
    tracks: Mapping[str, Track],
    fault: str | None,
    extra: Board,
    unseen: Mapping[str, str] = {},
) -> Board:
    """All of it. `unseen`: whose snapshot is an old one, or missing, and why."""
    told: Board = {
        "all/redis": fault or "",
        "all/redis_state": "away" if fault else "there",
        "all/shape": plain(
            "/".join(sorted(f"{one.snapshot.destination}{'-' * one.removed}" for one in seen))
        ),
        "all/unseen": _unseen(unseen),
        "all/unseen_state": "away" if unseen else "there",
        **_all([one.snapshot for one in seen], fault, unseen),
        **extra,
    }
    for one in seen:
        track = tracks.get(one.snapshot.destination)
        place = plain(one.snapshot.destination)  # a foreign hand's may be anything, and this is in attributes
        told |= {f"{place}/{name}": text for name, text in _one(one, track).items()}
        if one.snapshot.destination in unseen:
            told |= {f"{place}/{name}": text for name, text in _old(one.snapshot, unseen).items()}
    return told


def number(value: float) -> str:
    """With a thin space between thousands."""
    return f"{value:,.0f}".replace(",", "\u2009")


def rate(value: float) -> str:
    """Per second."""
    return f"{value:.1f}" if 0 < value < 10 else number(value)


def _unseen(unseen: Mapping[str, str]) -> str:
    """Which they are, and why the first was not seen; empty when all were."""
    if not unseen:
        return ""
    names = [plain(name) for name in unseen]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    why = next(iter(unseen.values()))
    return f"Not seen now: {', '.join(names[:NAMED])}{more}; the others are. {why}"


def _old(one: Snapshot, unseen: Mapping[str, str]) -> Board:
    """What says that the figures are not of now."""
    told = f"Not seen since {_clock(str(one.now))}, of then are the figures. {unseen[one.destination]}"
    return {"gate": "not seen", "gate_state": "bad", "gate_told": told, "unaccounted_state": "unknown"}


def _all(seen: Sequence[Snapshot], fault: str | None, unseen: Mapping[str, str]) -> Board:
    ledger, state = _ledger(seen, fault, unseen)
    closed = sum("state" in one.gate for one in seen)
    return {
        "all/ledger": ledger,
        "all/ledger_state": state,
        "all/depth": number(sum(one.depth for one in seen)),
        "all/in_flight": number(sum(one.in_flight for one in seen)),
        "all/retrying": number(sum(one.retrying for one in seen)),
        "all/dead": number(sum(one.dead_letters for one in seen)),
        "all/closed": number(closed),
        "all/closed_state": "warn" if closed else "good",
        "all/dead_state": "warn" if any(one.dead_letters for one in seen) else "good",
    }


def _ledger(seen: Sequence[Snapshot], fault: str | None, unseen: Mapping[str, str]) -> tuple[str, str]:
    """Whether anything is lost, and how good that is; nothing is claimed that was not just seen."""
    missing = sum(one.unaccounted for one in seen)
    accepted = sum(one.ledger.accepted for one in seen)
    if not seen:
        return "Nothing is known yet." if fault else "There is nothing to lose yet.", "unknown"
    if missing:
        told = f"{number(missing)} unaccounted: the ledger below has where, docs/operations.md what to do."
        return told, "bad"
    if unseen:
        fresh = sum(one.destination not in unseen for one in seen)
        places = count(fresh, "destination that was", "destinations that were")
        return f"Nothing is lost in the {places} seen; {len(unseen)} not seen.", "unknown"
    told = f"Nothing is lost: all {number(accepted)} deliveries are accounted for."
    return (f"When Redis last answered: {told}", "unknown") if fault else (told, "good")


def _one(seen: Seen, track: Track | None) -> Board:
    one, state = seen.snapshot, seen.snapshot.gate.get("state", "open")
    told = {
        "depth": number(one.depth),
        "waiting": number(one.waiting - one.in_flight),
        "in_flight": number(one.in_flight),
        "retrying": number(one.retrying),
        "dead": number(one.dead_letters),
        "dead_state": "warn" if one.dead_letters else "good",
        "age": age(None if one.oldest_at is None else max(0, one.now - one.oldest_at) / 1000),
        "consumers": number(one.consumers),
        "gate": f"closed: {state}" if state in ("breaker", "throttled") else plain(state),
        "gate_state": "good" if state == "open" else "bad" if state == "gone" else "warn",
        "gate_told": gate(one),
        "unaccounted": number(one.unaccounted),
        "unaccounted_state": "bad" if one.unaccounted else "good",
        **{f"ledger_{name}": number(getattr(one.ledger, name)) for name in one.ledger.__struct_fields__},
    }
    if track is not None:
        most_depth, most_rate = track.most
        told |= {
            "rate": rate(track.rate),
            "depth_line": track.depths,
            "rate_line": track.rates,
            "depth_most": number(most_depth),
            "rate_most": rate(most_rate),
        }
    return told


def gate(one: Snapshot) -> str:
    """Why nothing is sent, in a sentence; empty when it is open."""
    told = one.gate
    if "state" not in told:
        return ""
    since = f" since {_clock(told['opened_at'])}" if told.get("opened_at", "").isdecimal() else ""
    until = f", until {_clock(told['until'])}" if told.get("until", "").isdecimal() else ""
    why = f": {plain(told['reason'])}" if told.get("reason") else ""
    waits = count(one.depth, "delivery waits", "deliveries wait")
    return f"{plain(told['state']).capitalize()}{since}{until}{why}. {waits}; max_age still counts."


def _clock(ms: str) -> str:
    return moment(int(ms))[11:19] + " UTC"
