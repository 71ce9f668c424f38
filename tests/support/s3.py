"""An S3 on loopback: moto's server in a thread of the test's process."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer


class S3:
    """`url` is where it listens, `environment` what an operator would set."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.environment = {
            "AWS_ENDPOINT": url,
            "AWS_ACCESS_KEY_ID": "agents",
            "AWS_SECRET_ACCESS_KEY": "hunter2",
            "AWS_REGION": "us-east-1",
        }

    def bucket(self) -> str:
        """A new one; its URL."""
        name = f"bucket-{secrets.token_hex(8)}"
        with urlopen(Request(f"{self.url}/{name}", method="PUT")) as answer:  # noqa: S310 - it is ours
            assert answer.status == 200
        return f"s3://{name}"

    def count(self, bucket: str) -> int:
        """How many objects are in it."""
        name = bucket.removeprefix("s3://")
        with urlopen(f"{self.url}/{name}?list-type=2") as answer:  # noqa: S310 - it is ours
            found = re.search(rb"<KeyCount>(\d+)</KeyCount>", answer.read())
        assert found
        return int(found[1])


@contextmanager
def running() -> Iterator[S3]:
    """Until the end of the block."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    try:
        yield S3(f"http://127.0.0.1:{port}")
    finally:
        server.stop()
