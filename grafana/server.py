"""Redis as both services see it: errors, what makes it unsafe, and how long it takes."""

from __future__ import annotations

from grafana.panels import ALL, NONE, Dashboard, Panel, Row, grown, happened, quantile, rate

SAFE = Row(
    "Safe?",
    (
        Panel(
            "Unsafe",
            "1: may cost alerts, in this way.",
            "short",
            {"{{kind}}": f"max by (kind) (redispatch_redis_unsafe{{{ALL}}})"},
            "redis-is-unsafe",
            bad=1,
        ),
        Panel(
            "Errors",
            "Commands that brought no result, by kind; `oom`: maxmemory was reached, and ingest answers 503.",
            "cps",
            {"{{job}} {{kind}}": happened("redis_errors_total", "job", "kind", to=ALL)},
            "redis-is-unsafe",
            nothing=NONE,
        ),
        Panel(
            "Consumer groups made again",
            "In the time shown. Somebody removed a group, or Redis went back in time.",
            "short",
            {"groups": grown("group_recreated_total", to=ALL)},
            "redis-is-unsafe",
            bad=1,
        ),
    ),
)
QUICK = Row(
    "Quick?",
    (
        Panel(
            "One call of append",
            "From ingest to Redis and back, with its durability.",
            "s",
            {
                "median": quantile(0.5, "append_seconds", to=ALL),
                "99 %": quantile(0.99, "append_seconds", to=ALL),
            },
            "",
            warn=0.1,
            bad=1,
        ),
        Panel(
            "Calls of append",
            "A second, of all processes of ingest.",
            "cps",
            {"calls": rate("append_seconds_count", to=ALL)},
            "",
        ),
        Panel(
            "Since last progress",
            "Of each dispatcher: how long ago Redis answered it.",
            "s",
            {
                "{{instance}}": (
                    f"time() - min by (instance) (redispatch_last_progress_timestamp_seconds{{{ALL}}})"
                )
            },
            "a-dispatcher-makes-no-progress",
            warn=60,
            bad=120,
        ),
    ),
)
DASHBOARD = Dashboard(
    "redispatch-redis",
    "redispatch: Redis",
    "Redis, as both services see it.",
    (SAFE, QUICK),
    {
        "namespace": "label_values(redispatch_redis_unsafe, namespace)",
        "job": "label_values(redispatch_redis_unsafe, job)",
    },
)
