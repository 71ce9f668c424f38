"""The first page: is anything lost, late or stuck?"""

from __future__ import annotations

from grafana.destination import GATE, GATES
from grafana.panels import ALL, NONE, TO, Dashboard, Panel, Row, every, happened, quantile

LOST_ENTRIES = f"increase(redispatch_lost_entries_total{{{TO}}}[$__range])"
LOST = Row(
    "Lost?",
    (
        Panel(
            "Unaccounted",
            "What the ledgers can't explain: must be 0.",
            "short",
            {"deliveries": f"sum({every('unaccounted_deliveries')})"},
            "the-ledger-is-not-0",
            bad=1,
            number=True,
            width=6,
        ),
        Panel(
            "Lost entries",
            "Entries that vanished from Redis, in the time shown.",
            "short",
            {"entries": f"sum(max by (destination) ({LOST_ENTRIES}))"},
            "entries-were-lost",
            bad=1,
            number=True,
            width=6,
        ),
        Panel(
            "Dead letters",
            "Deliveries given up, kept with their reason. Nobody gets these unless somebody acts.",
            "short",
            {"dead letters": f"sum({every('dead_letters')})"},
            "dead-letters",
            warn=1,
            number=True,
            width=6,
        ),
        Panel(
            "Redis is unsafe",
            "How many of: no AOF, an evicting memory policy, a second consumer group.",
            "short",
            {"kinds": f"sum(max by (kind) (redispatch_redis_unsafe{{{ALL}}}))"},
            "redis-is-unsafe",
            bad=1,
            number=True,
            width=6,
        ),
    ),
)
FULLEST = f"max({every('queue_depth')} / {every('queue_limit')})"
OVERDUE = f"{every('retry_overdue_seconds')} unless ({every('gate_closed')} == 1)"
UNREAD = (
    f"({every('consumers')} == bool 0)"
    f" unless ({every('gate_closed')} == 1) unless ({every('destination_removed')} == 1)"
)
LATE = Row(
    "Late?",
    (
        Panel(
            "Oldest waiting",
            "Since the oldest entry of any queue was last put there.",
            "s",
            {"age": f"max({every('oldest_delivery_age_seconds')})"},
            "deliveries-wait-for-long",
            warn=60,
            bad=600,
            number=True,
            width=6,
        ),
        Panel(
            "Retry overdue",
            "How long the first retry of any destination has been due, behind an open gate.",
            "s",
            {"overdue": f"max({OVERDUE}) or vector(0)"},
            "retries-are-overdue",
            warn=30,
            bad=120,
            number=True,
            width=6,
        ),
        Panel(
            "Fullest queue",
            "Depth by its limit; at the limit newcomers become dead letters.",
            "percentunit",
            {"queue": FULLEST},
            "the-queue-is-full",
            warn=0.5,
            bad=0.8,
            number=True,
            width=6,
        ),
        Panel(
            "Since the last canary",
            "Of the destination that has waited longest for one; no data when they are off.",
            "s",
            {"seconds": f"time() - min({every('canary_last_success_timestamp_seconds')} > 0)"},
            "a-canary-is-late",
            warn=90,
            bad=180,
            number=True,
            width=6,
        ),
    ),
)
STUCK = Row(
    "Stuck?",
    (
        Panel(
            "Closed gates",
            "Destinations to which nothing is sent: gone, paused, broken or throttled.",
            "short",
            {"gates": f"sum({every('gate_closed')})"},
            "a-closed-gate",
            warn=1,
            number=True,
            width=4,
        ),
        Panel(
            "Read by nobody",
            "Destinations with an open gate and without a consumer.",
            "short",
            {"destinations": f"sum({UNREAD}) or vector(0)"},
            "consumers-are-missing",
            bad=1,
            number=True,
            width=4,
        ),
        Panel(
            "Removed, not empty",
            "Destinations that left the configuration while something was left there.",
            "short",
            {"destinations": f"sum({every('destination_removed')})"},
            "a-destination-that-was-removed",
            warn=1,
            number=True,
            width=4,
        ),
        Panel(
            "Dispatchers",
            "How many Prometheus sees.",
            "short",
            {"dispatchers": f"count(redispatch_last_progress_timestamp_seconds{{{ALL}}}) or vector(0)"},
            "no-dispatcher-is-seen",
            least=1,
            number=True,
            width=4,
        ),
        Panel(
            "Since last progress",
            "Of the dispatcher that has waited longest for an answer of Redis.",
            "s",
            {"seconds": f"time() - min(redispatch_last_progress_timestamp_seconds{{{ALL}}})"},
            "a-dispatcher-makes-no-progress",
            warn=60,
            bad=120,
            number=True,
            width=4,
        ),
        Panel(
            "Configuration refused",
            "Services that go on with an older configuration, since the file can't be used.",
            "short",
            {"services": f"sum(redispatch_config_reload_failed{{{ALL}}})"},
            "the-configuration-is-not-reloaded",
            warn=1,
            number=True,
            width=4,
        ),
    ),
)
_OURS = 'ALERTS{{alertname=~"Redispatch.*",alertstate="{}"}}'
ALARMS = f"max by (alertname) ({_OURS.format('firing')} * 2 or {_OURS.format('pending')})"
FLOW = Row(
    "Flow",
    (
        Panel(
            "Alerts in",
            "Items by what became of them; `refused` was answered with 503, and the sender keeps it.",
            "cps",
            {"{{outcome}}": happened("alerts_total", "outcome", to=ALL)},
            "",
            nothing=NONE,
        ),
        Panel(
            "Deliveries out",
            "Deliveries that ended, by result.",
            "cps",
            {"{{result}}": happened("deliveries_total", "result")},
            "nothing-is-delivered",
            nothing=NONE,
        ),
        Panel(
            "Attempts that failed",
            "By destination and outcome.",
            "cps",
            {
                "{{destination}} {{outcome}}": happened(
                    "attempts_total", "destination", "outcome", to=TO + ',outcome!="delivered"'
                )
            },
            "nothing-is-delivered",
            nothing=NONE,
        ),
        Panel(
            "Queues",
            "Deliveries waiting, in flight or retrying.",
            "short",
            {"{{destination}}": every("queue_depth")},
            "the-queue-is-full",
        ),
        Panel(
            "End to end, 99 %",
            "From acceptance to delivery, retries included, of those that were delivered.",
            "s",
            {"{{destination}}": quantile(0.99, "end_to_end_seconds", "destination")},
            "deliveries-wait-for-long",
            warn=60,
            bad=600,
        ),
        Panel(
            "Dead letters of each",
            "Deliveries given up, and not yet replayed or discarded.",
            "short",
            {"{{destination}}": every("dead_letters")},
            "dead-letters",
        ),
        Panel(
            "Alarms",
            "Rules of redispatch that are pending or firing.",
            "short",
            {"{{alertname}}": ALARMS},
            "",
            states={1: ("pending", "orange"), 2: ("firing", "red")},
            nothing="none",
            width=12,
        ),
        Panel(
            "Gates",
            "Why nothing is sent; throttled and breaker end by themselves, paused and gone by resume.",
            "short",
            {"{{destination}}": GATE},
            "a-closed-gate",
            states=GATES,
            width=12,
        ),
    ),
)
DASHBOARD = Dashboard(
    "redispatch-overview",
    "redispatch: overview",
    "Is anything lost, late or stuck?",
    (LOST, LATE, STUCK, FLOW),
    {
        "namespace": "label_values(redispatch_config_reload_failed, namespace)",
        "job": "label_values(redispatch_config_reload_failed, job)",
        "destination": "label_values(redispatch_queue_limit, destination)",
    },
)
