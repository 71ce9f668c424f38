"""Real senders, as Debian packages them: a missing one skips the test here and fails it when `CI` is set."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.processes import Process, Processes, wait_ready
from tests.support.servers import free_port


def installed(name: str) -> str:
    """The path of a program, or the test ends here."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")
    if found is not None:
        return found
    if "CI" in os.environ:
        pytest.fail(f"no {name} on this machine", pytrace=False)
    pytest.skip(f"no {name} on this machine")


class Value:
    """A metric that Prometheus scrapes; `set` is seen with the next scrape."""

    def __init__(self) -> None:
        self.value = 0.0
        self.target = ""

    async def page(self, request: web.BaseRequest) -> web.Response:
        """What is scraped."""
        return web.Response(text=f"# TYPE depth gauge\ndepth {self.value}\n")


@asynccontextmanager
async def scraped() -> AsyncIterator[Value]:
    """One metric, `depth`, at `target`."""
    value = Value()
    runner = web.ServerRunner(web.Server(value.page, access_log=None), shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    value.target = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield value
    finally:
        await runner.cleanup()


RULES = """
groups:
  - name: queues
    rules:
      - alert: QueueDeep
        expr: last_over_time(depth[1m]) > 10  # a scrape that came too late resolves nothing
        labels: {severity: critical}
        annotations: {summary: "depth is {{ $value }}"}
"""
PROMETHEUS = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs: [{job_name: app, static_configs: [{targets: ["%s"], labels: {host: web-1}}]}]
alerting: {alertmanagers: [{static_configs: [{targets: ["%s"]}]}]}
"""


async def prometheus(processes: Processes, value: Value, alertmanager: str, name: str = "a") -> Process:
    """One that looks each second, repeats what fires each second, and has no memory of an earlier one."""
    program = installed("prometheus")
    processes.config(RULES, "rules.yml")
    config = processes.config(PROMETHEUS % (value.target, alertmanager), f"prometheus-{name}.yml")
    listen = f"127.0.0.1:{free_port()}"
    process = await processes.start(
        *(program, f"--config.file={config}", f"--storage.tsdb.path={processes.directory / name}"),
        *(f"--web.listen-address={listen}", "--rules.alert.resend-delay=1s"),
    )
    await wait_ready(f"http://{listen}/-/ready", process)
    return process


ALERTMANAGER = """
route: {receiver: redispatch, group_by: [alertname], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}
receivers: [{name: redispatch, webhook_configs: [{url: "%s/v1/alertmanager", send_resolved: true}]}]
"""


async def alertmanager(processes: Processes, url: str) -> str:
    """One that sends everything to `url`; where it takes alerts."""
    program = installed("prometheus-alertmanager")
    config = processes.config(ALERTMANAGER % url, "alertmanager.yml")
    listen = f"127.0.0.1:{free_port()}"
    process = await processes.start(
        *(program, f"--config.file={config}", f"--storage.path={processes.directory / 'alertmanager'}"),
        *(f"--web.listen-address={listen}", "--cluster.listen-address="),
    )
    await wait_ready(f"http://{listen}/-/ready", process)
    return listen


COLLECTD = """
Hostname "web-1"
FQDNLookup false
Interval 1
Timeout 60
BaseDir "{base}"
LoadPlugin filecount
LoadPlugin threshold
LoadPlugin write_http
<Plugin filecount>
  <Directory "{box}">
    Instance "box"
  </Directory>
</Plugin>
<Plugin threshold>
  <Type "files">
    FailureMax 0.5
  </Type>
</Plugin>
<Plugin write_http>
  <Node "redispatch">
    URL "{url}/v1/collectd"
    Format "JSON"
    Metrics true
    Notifications true
    StoreRates true
    BufferSize 1024
  </Node>
</Plugin>
"""


async def collectd(processes: Processes, url: str, box: Path) -> Process:
    """One that counts the files in `box` each second: more than none is a FAILURE."""
    program = installed("collectd")
    told = COLLECTD.format(base=processes.directory / "collectd", box=box, url=url)
    return await processes.start(program, "-f", "-C", str(processes.config(told, "collectd.conf")))
