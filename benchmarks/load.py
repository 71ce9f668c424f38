"""Load from wrk: alerts with unique keys over some connections, for some seconds, as fast as they are
answered or at a pace.

Takes an address; returns what wrk measured. Raises Missing when there is no wrk on this machine.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
from pathlib import Path

from msgspec import Struct

CONNECTIONS = 32  # unless others are asked for
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
_PACED = """
function delay()
  return math.random(0, LONGEST)
end
"""
_WAITING = (
    0.85  # of the time from one request of a connection to its next at a pace; the rest is for the answer
)
_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}


class Missing(Exception):
    """No wrk on this machine."""


class Measured(Struct, frozen=True):
    """Requests per second; 50th and 99th percentile in ms; answers that were not 2xx or did not come."""

    rate: float
    p50: float
    p99: float
    refused: int


async def load(
    address: str, directory: Path, *, seconds: float, connections: int = CONNECTIONS, pace: float = 0.0
) -> Measured:
    """One run of wrk against `address` (host:port).

    Without a `pace` every connection sends again as soon as it is answered, so that the mean latency is
    connections : rate whatever is measured. With one they wait at random in between, for about so many
    requests per second altogether.
    """
    wrk = shutil.which("wrk")
    if wrk is None:
        raise Missing("no wrk on this machine: apt-get install wrk")
    script = directory / "alerts.lua"
    script.write_text(_SCRIPT.replace("RUN", secrets.token_hex(4)) + _pausing(connections, pace))
    options = ["-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--latency", "-s", str(script)]
    process = await asyncio.create_subprocess_exec(
        wrk, *options, f"http://{address}/v1/alerts", stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    return parse(printed.decode())


def _pausing(connections: int, pace: float) -> str:
    if not pace:
        return ""
    mean = _WAITING * 1000 * connections / pace
    return _PACED.replace("LONGEST", f"{2 * mean:.0f}")


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
