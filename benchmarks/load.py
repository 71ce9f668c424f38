"""Load from wrk: alerts with unique keys over some connections, for some seconds.

Takes an address; returns what wrk measured. Raises Missing when there is no wrk on this machine.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
from pathlib import Path

from msgspec import Struct

_SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local n = 0
function request()
  n = n + 1
  return wrk.format(nil, "/v1/alerts", nil, '{"host":"web-' .. n .. '-RUN","name":"disk-full",' ..
    '"severity":"critical","summary":"the disk of this machine is full"}')
end
"""
_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}


class Missing(Exception):
    """No wrk on this machine."""


class Measured(Struct, frozen=True):
    """Requests per second; 50th and 99th percentile in ms; answers that were not 2xx or did not come."""

    rate: float
    p50: float
    p99: float
    refused: int


async def load(address: str, directory: Path, *, seconds: float, connections: int = 32) -> Measured:
    """One run of wrk against `address` (host:port)."""
    wrk = shutil.which("wrk")
    if wrk is None:
        raise Missing("no wrk on this machine: apt-get install wrk")
    script = directory / "alerts.lua"
    script.write_text(_SCRIPT.replace("RUN", secrets.token_hex(4)))
    options = ["-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--latency", "-s", str(script)]
    process = await asyncio.create_subprocess_exec(
        wrk, *options, f"http://{address}/v1/alerts", stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    return parse(printed.decode())


def parse(printed: str) -> Measured:
    """What wrk printed."""
    rate = re.search(r"Requests/sec:\s*([\d.]+)", printed)
    if rate is None:
        raise ValueError(f"wrk printed no rate:\n{printed}")
    refused = sum(int(count) for count in re.findall(r"Non-2xx or 3xx responses: (\d+)", printed))
    broken = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", printed)
    refused += sum(map(int, broken.groups())) if broken else 0
    return Measured(float(rate[1]), _percentile(printed, "50%"), _percentile(printed, "99%"), refused)


def _percentile(printed: str, which: str) -> float:
    found = re.search(rf"\s{which}\s+([\d.]+)(us|ms|s|m)\b", printed)
    if found is None:
        raise ValueError(f"wrk printed no {which}:\n{printed}")
    return float(found[1]) * _MS[found[2]]
