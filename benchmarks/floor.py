"""What the server's part of a delivery costs when nothing of ours is in it: the commands alone.

Takes a full queue; reads it, and for each entry sets its record twice, acknowledges and deletes it, in
batches. Returns the server's CPU time per entry, microseconds.
"""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from common import keys
from common.wire import Wire

BATCH = 256
_RECORD = "in_flight 1795975482000-0 1 consumer-abcdef01 0 - 1795975482000 1795975482000 0  abcdef0123456789"
_SCRIPT = f"""#!lua
for i = 2, #KEYS do
  redis.call('SET', KEYS[i], '{_RECORD}', 'PX', '90000000')
  redis.call('SET', KEYS[i], '{_RECORD}', 'PX', '90000000')
  redis.call('XACK', KEYS[1], 'dispatchers', ARGV[i - 1])
end
redis.call('XDEL', KEYS[1], unpack(ARGV))
"""


async def cpu(redis: Redis) -> float:
    """What the server has used so far, microseconds."""
    told = await redis.info("cpu")
    return float(told["used_cpu_user"] + told["used_cpu_sys"]) * 1e6


async def floor(redis: Redis, namespace: str, destination: str) -> float:
    """Empty the queue with the commands alone."""
    at = keys.Destination(namespace, destination)
    await redis.xgroup_create(at.stream, keys.GROUP, id="0")
    wire = Wire(redis)
    done, before = 0, await cpu(redis)
    while entries := await _read(wire, at.stream):
        ids = [entry[0] for entry in entries]
        records = [at.record(entry[1][1].decode()) for entry in entries]
        await wire.execute_command("EVAL", _SCRIPT, len(ids) + 1, at.stream, *records, *ids)
        done += len(ids)
    used = await cpu(redis) - before
    await wire.close()
    return used / done


async def _read(wire: Wire, stream: str) -> list[Any]:
    command = ("XREADGROUP", "GROUP", keys.GROUP, "floor", "COUNT", BATCH, "STREAMS", stream, ">")
    read = await wire.execute_command(*command)
    return list(read[0][1]) if read else []
