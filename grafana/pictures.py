"""Writes `docs/pictures/`: `python -m grafana.pictures`, or some scenes by name. Needs the group `pictures`.

Each scene is driven on running services, which a real Prometheus scrapes each second; then every query of a
dashboard's panels is asked over that time, and drawn. Takes some four minutes, and two free processors.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import aiohttp

from grafana import draw, generate
from grafana.scenes import SCENES, Scene, staged

TO = Path(__file__).resolve().parent.parent / "docs" / "pictures"
BEFORE = 5.0  # seconds of peace at the left of each picture


async def picture(scene: Scene, name: str, dashboard: str, start: float, end: float) -> Path:
    """Ask all queries of a dashboard over that time (seconds since the epoch), and draw them."""
    content = json.loads(generate.file(dashboard).read_text("utf-8"))
    values = {"namespace": ".*", "job": ".*", "destination": ".*"}
    values |= {"__rate_interval": "5s", "__range": f"{round(end - start)}s"}
    answers: dict[int, draw.Series] = {}
    for panel in content["panels"]:
        answers[panel["id"]] = {}
        for target in panel.get("targets", ()):
            query = filled(target["expr"], values)
            told = await scene.prometheus.ask(
                "query_range", query=query, start=str(start), end=str(end), step=str(draw.STEP)
            )
            answers[panel["id"]] |= draw.series(told["result"], target["legendFormat"], start)
    path = TO / f"{name}-{dashboard}.png"
    draw.draw(content, answers, end - start, f"{content['title']} — {scene.title}", path)
    return path


def filled(text: str, values: Mapping[str, str]) -> str:
    """A query with the dashboard's variables filled in."""
    return re.sub(r"\$(?:{(\w+)}|(\w+))", lambda found: values[found[1] or found[2]], text)


async def play(name: str, act: Callable[[Scene], Awaitable[None]], dashboards: tuple[str, ...]) -> None:
    """One scene, and its pictures."""
    with tempfile.TemporaryDirectory() as directory:
        async with aiohttp.ClientSession() as http, staged(Path(directory), http, act.__doc__ or "") as scene:
            start = await scene.prometheus.value("time()")
            await asyncio.sleep(BEFORE)
            await act(scene)
            end = await scene.prometheus.value("time()")
            for dashboard in dashboards:
                at = scene.noticed_at if dashboard == "overview" and scene.noticed_at else end
                path = await picture(scene, name, dashboard, start, at)
                sys.stdout.write(f"{path.name} {path.stat().st_size // 1024} KiB\n")


def main(names: list[str]) -> int:
    """All scenes, or these."""
    TO.mkdir(exist_ok=True)
    for name, (act, dashboards) in SCENES.items():
        if not names or name in names:
            asyncio.run(play(name, act, dashboards))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
