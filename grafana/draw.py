"""A dashboard as a picture, roughly as Grafana shows it, for pages where no Grafana is at hand.

Takes a dashboard's JSON and what its queries gave over a span of time; writes a PNG: lines and numbers in the
dashboard's own grid, with units, thresholds and legends. Raises ValueError for a type of panel that is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from msgspec import Struct
from PIL import Image

INCHES = 0.62  # of one of the 24 columns
HEIGHT = 0.36  # inches of one unit of a panel's height
COLORS = {"green": "#3d8b4b", "yellow": "#e3c52f", "orange": "#e08b2c", "red": "#c4322f", "blue": "#3274a1"}
LINES = [*mpl.color_sequences["tab10"], *mpl.color_sequences["Dark2"]]
STEP = 1  # seconds between two values
MOST = 9  # lines of a legend; the rest is counted
Series = dict[str, list[tuple[float, float]]]  # by legend: seconds since the beginning, and the value


class Box(Struct, frozen=True):
    """Where a panel is: columns and units of height, from the upper left."""

    x: int
    y: int
    w: int
    h: int


def draw(
    dashboard: Mapping[str, Any], answers: Mapping[int, Series], span: float, title: str, to: Path
) -> None:
    """One picture; `answers` by the panels' ids, `span` in seconds."""
    panels = dashboard["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) + 1
    with mpl.rc_context({"font.size": 8, "axes.titlesize": 9, "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(24 * INCHES, height * HEIGHT), dpi=80, facecolor="#f4f5f5")
        figure.text(0.008, 1 - 0.6 / height, title, fontsize=11, weight="bold", va="center")
        for panel in panels:
            box = Box(**panel["gridPos"])
            if panel["type"] == "row":
                figure.text(
                    0.008, 1 - (box.y + 1.5) / height, f"▾ {panel['title']}", fontsize=10, va="center"
                )
                continue
            _panel(figure, panel, answers[panel["id"]], box, height, span)
        _save(figure, to)


def _save(figure: Figure, to: Path) -> None:
    """With few colours, which is a third of the size and can't be told apart."""
    figure.savefig(to)
    with Image.open(to) as image:
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(to, optimize=True)


def _panel(
    figure: Figure, panel: Mapping[str, Any], answer: Series, box: Box, height: int, span: float
) -> None:
    left, right = box.x / 24 + 0.006, (box.x + box.w) / 24 - 0.006
    top, bottom = 1 - (box.y + 1.2) / height, 1 - (box.y + box.h + 0.85) / height
    ground = figure.add_axes((left, bottom, right - left, top - bottom), facecolor="white")
    ground.set(xticks=[], yticks=[])
    ground.spines[:].set_color("#d8d9da")
    figure.text(left + 0.004, top - 0.35 / height, panel["title"], fontsize=9, weight="bold", va="center")
    match panel["type"]:
        case "stat":
            _number(ground, panel, answer)
        case "timeseries":
            rows = min(len(answer), MOST + 1)
            legend = max(1, rows) * 0.42
            inner = (left + 0.032, bottom + (legend + 0.95) / height)
            size = (right - 0.008 - inner[0], top - 0.85 / height - inner[1])
            _lines(figure.add_axes((*inner, *size)), panel, answer, span)
            _legend(figure, panel, answer, (left + 0.006, right - 0.006), bottom, height)
        case "state-timeline":
            size = (right - left - 0.125, top - bottom - 1.9 / height)
            _states(figure.add_axes((left + 0.115, bottom + 0.95 / height, *size)), panel, answer, span)
        case other:
            raise ValueError(f"can't draw a panel of type {other}")


def _number(axes: Any, panel: Mapping[str, Any], answer: Series) -> None:
    told = [points for points in answer.values() if points]
    text, color = panel["fieldConfig"]["defaults"]["noValue"], "#9fa2a5"
    if told:
        value = told[0][-1][1]
        text, color = shown(value, _unit(panel)), COLORS[_level(panel, value)]
    axes.set_facecolor(color)
    if told:
        times, values = zip(*told[0], strict=True)
        axes.fill_between(times, values, color="white", alpha=0.25, linewidth=0)
        axes.set_ylim(0, 2.5 * max(*values, 1e-9))
        axes.set_xlim(times[0], times[-1] if times[-1] > times[0] else times[0] + 1)
    axes.text(0.5, 0.48, text, transform=axes.transAxes, color="white", fontsize=19, ha="center", va="center")


def _lines(axes: Any, panel: Mapping[str, Any], answer: Series, span: float) -> None:
    axes.grid(color="#e4e5e6", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(0, span)
    axes.xaxis.set_major_formatter(_clock)
    axes.yaxis.set_major_formatter(lambda value, _: shown(value, _unit(panel)))
    axes.locator_params(axis="y", nbins=5)
    axes.locator_params(axis="x", nbins=6)
    highest = 0.0
    for place, points in enumerate(answer.values()):
        if points:
            highest = max(highest, *(value for _, value in points))
            times, values = zip(*_with_gaps(points), strict=True)
            axes.plot(times, values, color=LINES[place % len(LINES)], linewidth=1.4)
            axes.fill_between(times, values, color=LINES[place % len(LINES)], alpha=0.07, linewidth=0)
    for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
        if step["value"] is not None and step["value"] <= 1.3 * highest:
            axes.axhline(step["value"], color=COLORS[step["color"]], linestyle=(0, (4, 3)), linewidth=1)
    axes.set_ylim(0, 1.1 * highest or 1)
    _nothing(axes, panel, answer)


def _with_gaps(points: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """A line ends where nothing was told, and begins anew."""
    before = points[0][0]
    for at, value in points:
        if at > before + 1.5 * STEP:
            yield at, nan
        yield at, value
        before = at


def _nothing(axes: Any, panel: Mapping[str, Any], answer: Series) -> None:
    if not any(answer.values()):
        text = panel["fieldConfig"]["defaults"]["noValue"]
        axes.text(0.5, 0.5, text, transform=axes.transAxes, color="#7b7f83", ha="center", va="center")


def _states(axes: Any, panel: Mapping[str, Any], answer: Series, span: float) -> None:
    """A row for each series, and a piece of it for each second."""
    [mapping] = panel["fieldConfig"]["defaults"]["mappings"]
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set(xlim=(0, span), ylim=(max(len(answer), 1) - 0.4, -0.6))
    axes.set_yticks(range(len(answer)), list(answer), fontsize=7)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(_clock)
    told: dict[str, str] = {}
    for row, points in enumerate(answer.values()):
        for at, value in points:
            state = mapping["options"][str(int(value))]
            told[state["text"]] = COLORS[state["color"]]
            axes.barh(row, 1, left=at, height=0.7, color=told[state["text"]])
    for place, (text, color) in enumerate(told.items()):
        x = place * 0.05 / axes.get_position().width
        axes.text(x, 1.02, f"■ {text}", transform=axes.transAxes, color=color, fontsize=7)
    _nothing(axes, panel, answer)


def _clock(seconds: float, _: object) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _legend(
    figure: Figure,
    panel: Mapping[str, Any],
    answer: Series,
    sides: tuple[float, float],
    bottom: float,
    height: int,
) -> None:
    """A table below the lines: name, last, max."""
    rows = [(place, name, points) for place, (name, points) in enumerate(answer.items()) if points]
    rows.sort(key=lambda row: -max(value for _, value in row[2]))
    left, right = sides
    for n, (place, name, points) in enumerate(reversed(rows[:MOST])):
        y = bottom + (0.3 + 0.42 * (n + (len(rows) > MOST))) / height
        values = [value for _, value in points]
        last, most = (shown(each, _unit(panel)) for each in (values[-1], max(values)))
        figure.text(left, y, f"━ {name}", color=LINES[place % len(LINES)], fontsize=7, va="center")
        figure.text(right, y, f"last {last}   max {most}", fontsize=7, va="center", ha="right", color="#555")
    if len(rows) > MOST:
        figure.text(left, bottom + 0.3 / height, f"and {len(rows) - MOST} more", fontsize=7, va="center")


def _unit(panel: Mapping[str, Any]) -> str:
    return str(panel["fieldConfig"]["defaults"]["unit"])


def _level(panel: Mapping[str, Any], value: float) -> str:
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    [*_, last] = [step for step in steps if step["value"] is None or value >= step["value"]]
    return str(last["color"])


def shown(value: float, unit: str) -> str:
    """A value with its unit, as Grafana writes it."""
    if unit == "s":
        return next(_seconds(value))
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    number = f"{value / 1000:.3g} K" if value >= 1000 else f"{value:.3g}"
    return number + {"cps": " c/s", "reqps": " req/s"}.get(unit, "")


def _seconds(value: float) -> Iterator[str]:
    for size, name in ((3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if value >= size:
            yield f"{value / size:.3g} {name}"
    yield f"{value * 1e6:.3g} µs" if value else "0 s"


def series(result: Sequence[Mapping[str, Any]], legend: str, start: float) -> Series:
    """What one query gave, by its legend; what is no number is left out."""
    found: Series = {}
    for one in result:
        name = legend
        for label, text in one["metric"].items():
            name = name.replace("{{" + label + "}}", text)
        points = [(float(at) - start, float(value)) for at, value in one["values"]]
        found[name] = [point for point in points if isfinite(point[1])]
    return found
