"""The context of connections over TLS: whom it trusts, and when it is made anew."""

from __future__ import annotations

from pathlib import Path

from redis.asyncio.connection import RedisSSLContext

from common import redis_tls
from tests.support.certificates import Authority, Files


def test_it_trusts_the_authority_of_the_address_alone_and_is_made_once(tmp_path: Path) -> None:
    Authority(tmp_path).issue("server")
    authority, own, key = Files(tmp_path).paths
    first, second = (RedisSSLContext(key, own, ca_certs=authority) for _ in range(2))
    made = redis_tls.context(first)
    assert [dict(*of["subject"]) for of in made.get_ca_certs()] == [{"commonName": "authority"}]
    assert redis_tls.context(second) is made
    Authority(tmp_path).issue("server")
    assert redis_tls.context(first) is not made
