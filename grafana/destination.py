"""One page per destination, or several side by side: what waits, what is sent, what was given up."""

from __future__ import annotations

from grafana.panels import NONE, TO, Dashboard, Panel, Row, booked, every, happened, quantile, rate

GATES = {
    0: ("open", "green"),
    1: ("throttled", "yellow"),
    2: ("breaker", "orange"),
    3: ("paused", "blue"),
    4: ("gone", "red"),
}
_CLOSED = (f'redispatch_gate_closed{{{TO},reason="{text}"}} * {n}' for n, (text, _) in GATES.items() if n)
GATE = f"max by (destination) ({' or '.join(_CLOSED)})"
SEEN = every("canary_last_success_timestamp_seconds")
CANARY = f"sum by (destination) (rate(redispatch_canary_end_to_end_seconds_{{}}{{{{{TO}}}}}[10m]))"
QUEUE = Row(
    "What waits",
    (
        Panel(
            "Depth",
            "Deliveries waiting, in flight or retrying.",
            "short",
            {"{{destination}}": every("queue_depth")},
            "the-queue-is-full",
        ),
        Panel(
            "In flight",
            "Deliveries pending under a consumer.",
            "short",
            {"{{destination}}": every("in_flight")},
            "nothing-is-delivered",
        ),
        Panel(
            "Retrying",
            "Deliveries that wait for their next attempt.",
            "short",
            {"{{destination}}": every("retrying")},
            "nothing-is-delivered",
        ),
        Panel(
            "Age of the oldest",
            "Since the oldest entry was last put into the stream.",
            "s",
            {"{{destination}}": every("oldest_delivery_age_seconds")},
            "deliveries-wait-for-long",
            warn=60,
            bad=600,
        ),
        Panel(
            "Retry overdue",
            "How long the first retry has been due.",
            "s",
            {"{{destination}}": every("retry_overdue_seconds")},
            "retries-are-overdue",
            warn=30,
            bad=120,
        ),
        Panel(
            "Gate",
            "Why nothing is sent; throttled and breaker end by themselves, paused and gone by resume.",
            "short",
            {"{{destination}}": GATE},
            "a-closed-gate",
            states=GATES,
        ),
    ),
)
SENT = Row(
    "What is sent",
    (
        Panel(
            "Attempts",
            "By outcome.",
            "cps",
            {"{{destination}} {{outcome}}": happened("attempts_total", "destination", "outcome")},
            "nothing-is-delivered",
            nothing=NONE,
        ),
        Panel(
            "Deliveries ended",
            "The rate at which deliveries end, by result.",
            "cps",
            {"{{destination}} {{result}}": happened("deliveries_total", "destination", "result")},
            "nothing-is-delivered",
            nothing=NONE,
        ),
        Panel(
            "Retries",
            "By the outcome before.",
            "cps",
            {"{{destination}} {{reason}}": happened("retries_total", "destination", "reason")},
            "nothing-is-delivered",
            nothing=NONE,
        ),
        Panel(
            "One attempt",
            "How long the receiver takes.",
            "s",
            {
                "{{destination}} median": quantile(0.5, "attempt_seconds", "destination"),
                "{{destination}} 99 %": quantile(0.99, "attempt_seconds", "destination"),
            },
            "nothing-is-delivered",
        ),
        Panel(
            "End to end",
            "From the alert's acceptance to its delivery, retries included.",
            "s",
            {
                "{{destination}} median": quantile(0.5, "end_to_end_seconds", "destination"),
                "{{destination}} 99 %": quantile(0.99, "end_to_end_seconds", "destination"),
            },
            "deliveries-wait-for-long",
            warn=60,
            bad=600,
        ),
        Panel(
            "Consumers",
            "Dispatchers that read this queue. Behind a closed gate they leave after some time.",
            "short",
            {"{{destination}}": every("consumers")},
            "consumers-are-missing",
        ),
    ),
)
DEAD = Row(
    "What was given up, or is not as it should be",
    (
        Panel(
            "Dead letters",
            "How many there are. Nobody gets these unless somebody acts.",
            "short",
            {"{{destination}}": every("dead_letters")},
            "dead-letters",
        ),
        Panel(
            "Died, by reason",
            "What was given up, by whomever: dispatchers, ingest (`queue_full`) or `retire` (`removed`).",
            "cps",
            {"{{destination}} {{reason}}": booked("dead_total", "destination", "reason")},
            "dead-letters",
            nothing=NONE,
        ),
        Panel(
            "Share of the limits",
            "At 100 % newcomers die, with dead letters at theirs, too, nothing comes in or dies any more.",
            "percentunit",
            {
                "{{destination}} queue": f"{every('queue_depth')} / {every('queue_limit')}",
                "{{destination}} dead letters": f"{every('dead_letters')} / {every('dead_letters_limit')}",
            },
            "dead-letters-reach-their-limit",
            warn=0.5,
            bad=0.8,
        ),
        Panel(
            "Ledger",
            "What can't be explained (must be 0), and what was booked as lost since the beginning.",
            "short",
            {
                "{{destination}} unaccounted": every("unaccounted_deliveries"),
                "{{destination}} lost": every("lost_entries_total"),
            },
            "the-ledger-is-not-0",
            bad=1,
            width=12,
        ),
        Panel(
            "Taken over, and too late",
            "Entries taken over from a replica that died or stood still; settlements that came after that.",
            "cps",
            {
                "{{destination}} reclaimed": rate("reclaimed_total", "destination"),
                "{{destination}} fenced": rate("fenced_total", "destination"),
            },
            "a-dispatcher-makes-no-progress",
            width=12,
        ),
    ),
)
CANARIES = Row(
    "Would a new one get there?",
    (
        Panel(
            "Since the last canary",
            "How long ago a canary last arrived on this destination's way; no data when they are off.",
            "s",
            {"{{destination}}": f"time() - ({SEEN} > 0)"},
            "a-canary-is-late",
            warn=90,
            bad=180,
            width=12,
        ),
        Panel(
            "Canary, end to end",
            "From its acceptance by ingest to the destination's lane, mean of ten minutes; nothing is sent.",
            "s",
            {"{{destination}}": f"{CANARY.format('sum')} / {CANARY.format('count')}"},
            "a-canary-is-late",
            warn=1,
            bad=10,
            width=12,
        ),
    ),
)
DASHBOARD = Dashboard(
    "redispatch-destination",
    "redispatch: destinations",
    "What waits for a destination, what is sent to it, and what was given up.",
    (QUEUE, SENT, DEAD, CANARIES),
    {
        "namespace": "label_values(redispatch_queue_limit, namespace)",
        "job": "label_values(redispatch_queue_limit, job)",
        "destination": "label_values(redispatch_queue_limit, destination)",
    },
)
