"""TLS and tokens with real processes: ingest, `send`, `check`, and curl as collectd's library is."""

from __future__ import annotations

import hashlib
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.processes import Processes
from tests.support.raw import Wire
from tests.support.servers import Server, free_port

TOKEN = "a-token-of-a-test"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.issue("server")
    return made


def config(processes: Processes, redis: str, **tls: str) -> tuple[Path, str]:
    """The configuration, and where ingest listens; its paths are relative to the file."""
    listen = f"127.0.0.1:{free_port()}"
    told: dict[str, Any] = {"cert": "server.crt", "key": "server.key", **tls}
    content = {
        "redis": {"url": redis, "timeout": "10s"},
        "ingest": {"listen": listen, "tls": told},
        "tokens": [{"name": "agents", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest(), "rate": "5/s"}],
        "destinations": [{"name": "sink", "type": "discard"}],
    }
    return processes.config(content), listen


async def name(listen: str, authority: Authority) -> str:
    """Whom the certificate names."""
    async with Wire(listen, ssl.create_default_context(cadata=authority.certificate)) as wire:
        told = wire.writer.get_extra_info("peercert")
        return str(dict(part[0] for part in told["subject"])["commonName"])


async def test_tls_a_token_and_a_renewed_certificate(
    processes: Processes, valkey: Server, authority: Authority, tmp_path: Path
) -> None:
    file, listen = config(processes, valkey.url)
    ingest = await processes.ingest(file)
    await ingest.wait_line("redis_seen")
    ca = str(tmp_path / "authority.crt")
    for words, code, text in (
        (["--ca", ca, "--token", TOKEN], 0, "201 {"),
        (["--ca", ca, "--token", "other"], 1, "answers 401"),
        (["--ca", ca], 1, "answers 401"),
        (["--token", TOKEN], 1, "can't be reached"),
        (["--ca", str(file), "--token", TOKEN], 1, "can't be used"),
        (["--ca", ca, "--token", "a\nb"], 2, "printable"),
    ):
        sender = await processes.redispatch("send", *words, config=file)
        assert await sender.wait_exit() == code, sender.text
        assert text in sender.text
        assert TOKEN not in sender.text
    authority.issue("renewed")
    for kind in ("crt", "key"):
        shutil.copy(tmp_path / f"renewed.{kind}", tmp_path / f"server.{kind}")
    await ingest.wait_line("certificates_taken")
    assert await name(listen, authority) == "renewed"
    assert await ingest.stop() == 0
    processes.assert_no_traceback()
    assert TOKEN not in ingest.text


async def test_curl_sends_a_password_once_it_is_told_that_basic_is_known(
    processes: Processes, valkey: Server, authority: Authority, tmp_path: Path
) -> None:
    """`--anyauth` is what collectd's write_http asks of the library."""
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    file, listen = config(processes, valkey.url)
    ingest = await processes.ingest(file)
    await ingest.wait_line("redis_seen")
    words = ["--silent", "--show-error", "--fail-with-body", "--cacert", str(tmp_path / "authority.crt")]
    alert = ["-H", "Content-Type: application/json", "-d", '{"host":"web-1","name":"disk-full"}']
    for more, code in (
        (["--anyauth", "-u", f"collectd:{TOKEN}"], 0),
        (["--anyauth", "-u", "collectd:x"], 22),
    ):
        curl = await processes.start("curl", *words, *more, *alert, f"https://{listen}/v1/alerts")
        assert await curl.wait_exit() == code, curl.text


@pytest.mark.parametrize(
    ("tls", "text"),
    [
        ({"key": "authority.key"}, "ingest.tls.key: "),
        ({"cert": "nowhere.crt"}, "ingest.tls.cert: "),
        ({"client_ca": "redispatch.yaml"}, "ingest.tls.client_ca: "),
    ],
)
async def test_wrong_files_end_it_and_are_found_by_check(
    processes: Processes, authority: Authority, tls: dict[str, str], text: str
) -> None:
    file, _ = config(processes, "redis://127.0.0.1:1/0", **tls)
    ingest = await processes.ingest(file)
    assert await ingest.wait_exit() == 1
    assert text in ingest.text
    check = await processes.redispatch("check", config=file)
    assert await check.wait_exit() == 1
    assert "fault: " in check.text
    assert text in check.text
    assert "redispatch.yaml" in check.text
    processes.assert_no_traceback()
