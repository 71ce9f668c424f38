"""Draws docs/pictures/status.svg, `redispatch status --watch` of a system in trouble: run it as a script.

It brings up a real one on free ports with `redispatch up`: a receiver that refuses a third of what it gets,
one that is not there, one that is paused; sends alerts for a while, looks, and ends it.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))  # run as a script, from anywhere

# ruff: noqa: E402  these are found through the line above
from redis.asyncio import Redis
from rich.console import Console

from benchmarks.stack import free_port
from common.settings import Settings
from ops import options, reach, tables
from ops.status import look, rated, title
from ops.tables import Seen

SECONDS = 12
LOOK = 0.1  # seconds between two looks whether it is up
EACH = 0.05  # seconds between two alerts
OWN = [sys.executable, "-m", "ops"]


def configuration(directory: Path) -> dict[str, Any]:
    """Five destinations, of which two fare well."""
    server, ingest, dispatcher, receiver, nobody = (free_port() for _ in range(5))
    away = {"type": "webhook", "allow_private": True, "secrets": ["whsec_" + "c2VjcmV0" * 4]}
    there = away | {"url": f"http://127.0.0.1:{receiver}/"}
    few = {"attempts": 2, "base": "4s", "cap": "4s"}
    destinations: list[dict[str, Any]] = [
        {"name": "pager", **there, "retry": {"preset": "page"}, "breaker": {"failures": 50}},
        {"name": "chat", **there, "retry": few, "breaker": {"failures": 50}},
        {"name": "tickets", **away, "url": f"http://127.0.0.1:{nobody}/"},
        {"name": "warehouse", "type": "discard"},
        {"name": "archive", "type": "discard"},
    ]
    return {
        "redis": {"url": f"redis://127.0.0.1:{server}/0"},
        "ingest": {"listen": f"127.0.0.1:{ingest}"},
        "dispatcher": {"listen": f"127.0.0.1:{dispatcher}"},
        "objects": {"url": str(directory / "objects")},
        "destinations": destinations,
        "routes": [{"to": [one["name"] for one in destinations]}],
    }


def trouble(settings: dict[str, Any], config: Path) -> None:
    """What goes wrong."""
    _post(f"{settings['destinations'][0]['url']}_fail?status=503&rate=0.35", {})
    words = ["pause", "warehouse", "--reason", "moves to another region", "--config", str(config)]
    subprocess.run([*OWN, *words], check=True, cwd=DOCS.parent, stdout=subprocess.DEVNULL)


def send(ingest: str, over: threading.Event) -> None:
    """Alerts, until it is over."""
    number = 0
    while not over.wait(EACH):
        number += 1
        _post(f"http://{ingest}/v1/alerts", {"host": f"web-{number}", "name": "disk-full"})


def _post(url: str, body: dict[str, str]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 - our own
    urllib.request.urlopen(request, timeout=20).close()  # noqa: S310 - our own


async def looked(redis: Redis, settings: Settings) -> list[Seen]:
    """Two looks a second apart: what --watch shows from its second on."""
    before = {each.snapshot.destination: each.snapshot for each in (await look(redis, settings)).seen}
    await asyncio.sleep(1)
    return [rated(each, before) for each in (await look(redis, settings)).seen]


def drawn(settings: Settings, seen: list[Seen]) -> str:
    """The SVG; the fonts are those of whoever looks at it."""
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=80, file=nowhere, force_terminal=True, highlight=False)
        console.print(tables.status(seen, f"{title(settings)}, {time.strftime('%H:%M:%S')}"))
    svg = console.export_svg(title="redispatch status --watch", unique_id="status")
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def main() -> None:
    """Bring it up, look, write, end it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        made, config = configuration(directory), directory / "redispatch.yaml"
        config.write_text(json.dumps(made))  # which is YAML
        words = [
            "up",
            "--config",
            str(config),
            "--data",
            name,
            "--receiver",
            made["destinations"][0]["url"][7:-1],
        ]
        with (directory / "log").open("w") as log:
            system = subprocess.Popen([*OWN, *words], cwd=DOCS.parent, stdout=log, stderr=log)
        over = threading.Event()
        sender = threading.Thread(target=send, args=(made["ingest"]["listen"], over))
        try:
            while "Ctrl-C stops it" not in (directory / "log").read_text("utf-8"):
                time.sleep(LOOK)
            trouble(made, config)
            sender.start()
            over.wait(SECONDS)
            settings = options.settings(str(config))
            svg = drawn(settings, reach.run(settings, lambda redis: looked(redis, settings)))
        finally:
            over.set()
            if sender.is_alive():
                sender.join(timeout=60)
            system.send_signal(signal.SIGINT)
            system.wait(timeout=60)
    (DOCS / "pictures" / "status.svg").write_text(svg, "utf-8")


if __name__ == "__main__":
    main()
