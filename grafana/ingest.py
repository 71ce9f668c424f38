"""What senders meet: how much comes from whom, how fast it is answered, and what is refused."""

from __future__ import annotations

from grafana.panels import ALL, NONE, Dashboard, Panel, Row, grown, happened, quantile, rate

REQUESTS = "ingest_request_seconds"
IN = Row(
    "What comes in",
    (
        Panel(
            "Items by source",
            "Alerts and readings, whatever became of them.",
            "cps",
            {"{{source}}": happened("alerts_total", "source", to=ALL)},
            "",
            nothing=NONE,
        ),
        Panel(
            "Items by outcome",
            "`duplicate`: known; `conflict`: known with another content; `refused`: answered with 503.",
            "cps",
            {"{{outcome}}": happened("alerts_total", "outcome", to=ALL)},
            "",
            nothing=NONE,
        ),
        Panel(
            "Requests by code",
            "All routes.",
            "reqps",
            {"{{code}}": happened("ingest_requests_total", "code", to=ALL)},
            "",
            nothing=NONE,
        ),
    ),
)
SPEED = Row(
    "How fast",
    (
        Panel(
            "Answer, by route",
            "From the request's head to its answer, 99 % of the requests.",
            "s",
            {"{{route}}": quantile(0.99, REQUESTS, "route", to=ALL + ',route=~"/v1/.*|/api/.*"')},
            "",
            warn=0.1,
            bad=1,
        ),
        Panel(
            "Answer, all",
            "Of requests with alerts or readings.",
            "s",
            {
                "median": quantile(0.5, REQUESTS, to=ALL + ',route=~"/v1/.*|/api/.*"'),
                "99 %": quantile(0.99, REQUESTS, to=ALL + ',route=~"/v1/.*|/api/.*"'),
            },
            "",
            warn=0.1,
            bad=1,
        ),
        Panel(
            "Batch size",
            "Events in one call of append: what arrived while the last one was under way.",
            "short",
            {
                "mean": (
                    f"{rate('append_batch_size_sum', to=ALL)} / {rate('append_batch_size_count', to=ALL)}"
                ),
                "99 %": quantile(0.99, "append_batch_size", to=ALL),
            },
            "",
        ),
    ),
)
REFUSED = Row(
    "What is refused",
    (
        Panel(
            "Refused requests",
            "429: over its rate. 503: no room, or no Redis; senders keep theirs. Others: their mistakes.",
            "reqps",
            {
                "{{code}} {{route}}": happened(
                    "ingest_requests_total", "code", "route", to=ALL + ',code=~"4..|5.."'
                )
            },
            "the-queue-is-full",
            nothing=NONE,
        ),
        Panel(
            "Items refused or invalid",
            "By source.",
            "cps",
            {
                "{{source}} {{outcome}}": happened(
                    "alerts_total", "source", "outcome", to=ALL + ',outcome=~"refused|invalid"'
                )
            },
            "",
            nothing=NONE,
        ),
        Panel(
            "Processes",
            "How many run, and how many ended by themselves in the time shown.",
            "short",
            {
                "running": f"sum(redispatch_ingest_workers{{{ALL}}})",
                "deaths": grown("ingest_worker_deaths_total", to=ALL),
            },
            "several-ingest-processes",
        ),
    ),
)
DASHBOARD = Dashboard(
    "redispatch-ingest",
    "redispatch: ingest",
    "How much comes from whom, how fast it is answered, and what is refused.",
    (IN, SPEED, REFUSED),
    {
        "namespace": "label_values(redispatch_ingest_workers, namespace)",
        "job": "label_values(redispatch_ingest_workers, job)",
    },
)
