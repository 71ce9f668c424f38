"""What a dashboard is made of: panels as plain values, and how they become Grafana's JSON.

Queue figures are the same on every dispatcher, so they are aggregated with `max`; counters of processes are
summed up. `ALL` and `TO` are the selectors that every query has, so that the variables hold everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from grafana_foundation_sdk.builders import common as look
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableOption,
    VariableRefresh,
)

ALL = 'namespace=~"$namespace",job=~"$job"'
TO = ALL + ',destination=~"$destination"'
NONE = "none in this time"  # stands in a panel whose queries leave out what did not happen
WIDTH = 24  # columns of a dashboard
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
# Where docs/operations.md can be read from Grafana; below /public is what lies in Grafana's own directory.
RUNBOOK = "/public/redispatch/operations.md"


@dataclass(frozen=True)
class Panel:
    """One panel: its queries by legend (`{{label}}` is a label's value), and the heading of its runbook."""

    title: str
    text: str
    unit: str
    queries: Mapping[str, str]
    heading: str  # an anchor of docs/operations.md, or ""
    warn: float | None = None
    bad: float | None = None
    least: float | None = None  # instead of both: below this it is bad
    number: bool = False  # one number instead of lines
    states: Mapping[int, tuple[str, str]] | None = None  # text and colour of each value, instead of lines
    nothing: str = "no data"  # what stands there when no query has an answer
    width: int = 8


@dataclass(frozen=True)
class Row:
    """Panels under a title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """One page; `variables` are those beside data source and runbook, with what lists their values."""

    uid: str
    title: str
    text: str
    rows: tuple[Row, ...]
    variables: Mapping[str, str]


def every(metric: str, *labels: str, to: str = TO) -> str:
    """A figure of the queue: the largest of what the dispatchers say."""
    return f"max by ({', '.join(labels or ('destination',))}) (redispatch_{metric}{{{to}}})"


def booked(metric: str, *labels: str) -> str:
    """Like `happened`, of a counter that Redis counts and every dispatcher shows."""
    by, series = ", ".join(labels), f"redispatch_{metric}{{{TO}}}"
    per_second = f"max by ({by}) (rate({series}[$__rate_interval]))"
    return f"{per_second} and max by ({by}) (increase({series}[$__range])) > 0"


def happened(metric: str, *labels: str, to: str = TO) -> str:
    """A counter per second, like `rate`, without the series that did not grow in the time shown: a legend of
    what happened, and not of all that might have."""
    return f"{rate(metric, *labels, to=to)} and {grown(metric, *labels, to=to)} > 0"


def rate(metric: str, *labels: str, to: str = TO) -> str:
    """A counter per second, of all processes together."""
    return f"sum by ({', '.join(labels)}) (rate(redispatch_{metric}{{{to}}}[$__rate_interval]))"


def grown(metric: str, *labels: str, to: str = TO) -> str:
    """How much a counter grew in the time shown, of all processes together."""
    return f"sum by ({', '.join(labels)}) (increase(redispatch_{metric}{{{to}}}[$__range]))"


def quantile(share: float, metric: str, *labels: str, to: str = TO) -> str:
    """Of a histogram, over all processes."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', 'le', *labels, to=to)})"


def encode(dashboard: Dashboard) -> str:
    """Grafana's JSON."""
    made = (
        build.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.text)
        .tags(["redispatch"])
        .refresh("10s")
        .time("now-1h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
    )
    for variable in _variables(dashboard.variables):
        made.with_variable(variable)
    others = build.DashboardLink("redispatch").type(DashboardLinkType.DASHBOARDS).tags(["redispatch"])
    made.link(others.include_vars(True).keep_time(True))
    number = 0
    for row in dashboard.rows:
        made.with_row(build.Row(row.title).id(number := number + 1))
        for panel in row.panels:
            made.with_panel(_panel(panel).id(number := number + 1))
    return JSONEncoder(sort_keys=True, indent=1).encode(made.build()) + "\n"


def _variables(
    wanted: Mapping[str, str],
) -> Iterable[build.DatasourceVariable | build.QueryVariable | build.TextBoxVariable]:
    yield build.DatasourceVariable("datasource").label("Data source").type("prometheus")
    everything = VariableOption(text="All", value="$__all")
    for name, query in wanted.items():
        variable = build.QueryVariable(name).label(name).query(query).datasource(SOURCE)
        variable = variable.multi(True).include_all(True).all_value(".*").current(everything)
        yield variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    text = "Where docs/operations.md is published"
    yield build.TextBoxVariable("runbook").label("Runbook").description(text).default_value(RUNBOOK)


_Made: TypeAlias = stat.Panel | timeseries.Panel | statetimeline.Panel


def _panel(panel: Panel) -> _Made:
    made = _states(panel.states) if panel.states else _number() if panel.number else _lines(panel)
    made.title(panel.title).description(panel.text).unit(panel.unit).datasource(SOURCE)
    made.height(4 if panel.number else 8).span(panel.width).min(0)
    made.thresholds(_thresholds(panel)).no_value(panel.nothing)
    if panel.heading:
        link = build.DashboardLink("What to do").type(DashboardLinkType.LINK).target_blank(True)
        made.links([link.url(f"${{runbook}}#{panel.heading}")])
    for place, (legend, expression) in enumerate(panel.queries.items()):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + place))
        made.with_target(query.range().datasource(SOURCE))
    return made


def _number() -> stat.Panel:
    made = stat.Panel().color_mode(BigValueColorMode.BACKGROUND).graph_mode(BigValueGraphMode.AREA)
    return made.reduce_options(look.ReduceDataOptions().calcs(["lastNotNull"]))


def _states(states: Mapping[int, tuple[str, str]]) -> statetimeline.Panel:
    """A bar for each series, in the colours of its states."""
    told = {str(value): ValueMappingResult(text=text, color=color) for value, (text, color) in states.items()}
    legend = look.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    made = statetimeline.Panel().mappings([ValueMap(options=told)]).legend(legend.show_legend(True))
    return made.show_value(VisibilityMode.AUTO).row_height(0.8).fill_opacity(80)


def _lines(panel: Panel) -> timeseries.Panel:
    legend = look.VizLegendOptions().display_mode(LegendDisplayMode.TABLE).placement(LegendPlacement.BOTTOM)
    legend.sort_by("Max").sort_desc(True)
    made = timeseries.Panel().legend(legend.show_legend(True).calcs(["lastNotNull", "max"]))
    made.tooltip(look.VizTooltipOptions().mode(TooltipDisplayMode.MULTI)).fill_opacity(10)
    if panel.warn is not None or panel.bad is not None:
        made.thresholds_style(look.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.DASHED))
    return made


def _thresholds(panel: Panel) -> build.ThresholdsConfig:
    if panel.least is not None:
        least = Threshold(value=panel.least, color="green")
        steps = [Threshold(value=None, color="red"), least]
        return build.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
    steps = [Threshold(value=None, color="green")]
    if panel.warn is not None:
        steps.append(Threshold(value=panel.warn, color="orange"))
    if panel.bad is not None:
        steps.append(Threshold(value=panel.bad, color="red"))
    return build.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
