"""What `redis.url` says: one server, the primary that sentinels name, or a Cluster.

Takes the text; returns a RedisUrl. Raises ValueError, whose text tells what was expected. Pure.
"""

from __future__ import annotations

import re
from enum import StrEnum
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from common.units import Address


class Kind(StrEnum):
    """How the servers behind an address belong together."""

    SERVER = "server"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class RedisUrl(Struct, frozen=True):
    """`plain` is the address as redis-py reads it; where `nodes` are given, it stands for user, password,
    database and TLS only. `nodes` are the sentinels, or some servers of the Cluster; `service` is the name
    that the sentinels know the primary by, and `user` and `password` are those of the sentinels."""

    kind: Kind
    plain: str
    nodes: tuple[Address, ...] = ()
    service: str = ""
    user: str | None = None
    password: str | None = None


_EXPECTED = (
    "expected redis://, rediss:// or unix://, redis+sentinel:// or redis+cluster:// (rediss+... for TLS)"
)
_SINGLE = ("redis", "rediss", "unix")
_PORTS = {Kind.SENTINEL: 26379, Kind.CLUSTER: 6379}
_SEVERAL = re.compile(
    r"(?P<tls>rediss?)\+(?P<kind>sentinel|cluster)://((?P<who>[^/?#]*)@)?(?P<nodes>[^/?#@]*)"
    r"(?P<path>[^?#]*)(\?(?P<query>[^#]*))?"
)
_EXAMPLES = {
    Kind.SENTINEL: "redis+sentinel://h1:26379,h2:26379/master/0",
    Kind.CLUSTER: "redis+cluster://h1:7000,h2:7000",
}
_SENTINEL = ("sentinel_username", "sentinel_password")
_ANY = re.compile(".*", re.DOTALL)
_OPTIONS = {
    "db": re.compile("[0-9]+"),
    "client_name": _ANY,
    "ssl_ca_certs": _ANY,
    "ssl_ca_path": _ANY,
    "ssl_certfile": _ANY,
    "ssl_keyfile": _ANY,
    "ssl_password": _ANY,
    "ssl_cert_reqs": re.compile("none|optional|required"),
    "ssl_check_hostname": re.compile("true|false|yes|no|1|0", re.IGNORECASE),
    "ssl_min_version": re.compile("77[12]"),
    "ssl_ciphers": _ANY,
}
_HINTS = {
    "db": "a number",
    "ssl_cert_reqs": "none, optional or required",
    "ssl_check_hostname": "yes or no",
    "ssl_min_version": "TLSv1.2 or TLSv1.3",
}
_VERSIONS = {"TLSv1.2": "771", "TLSv1.3": "772"}  # as `ssl.TLSVersion` and redis-py count them
_VERSION = re.compile(r"(?<=[?&]ssl_min_version=)TLSv1\.[23](?=[&#]|$)")


def parse(url: str) -> RedisUrl:
    """Read it. `redis+sentinel://h1,h2/name/0`, `rediss+cluster://user:password@h1,h2:7000`, and so on."""
    if "@" in url.partition("?")[2] + url.partition("#")[2]:  # else half of a password would be a host's name
        raise ValueError("user and password: write ? # / @ in them as %3F %23 %2F %40")
    url = _VERSION.sub(lambda found: _VERSIONS[found[0]], url)
    several = _SEVERAL.fullmatch(url)
    if several is None:
        return _single(url)
    kind, scheme, path = Kind(several["kind"]), several["tls"], several["path"].strip("/").split("/")
    nodes = tuple(_node(text, kind) for text in several["nodes"].split(","))
    query = dict(parse_qsl(several["query"] or ""))
    user, password = (query.pop(name, None) for name in _SENTINEL) if kind is Kind.SENTINEL else (None, None)
    _known(query, scheme)
    service = unquote(path.pop(0)) if kind is Kind.SENTINEL else ""
    database = path.pop(0) if path else ""
    if path or not re.fullmatch("[0-9]*", database) or (kind is Kind.SENTINEL and not service):
        raise ValueError(f"expected an address such as {_EXAMPLES[kind]}")
    if kind is Kind.CLUSTER and int(database or query.get("db", 0)):
        raise ValueError("a Cluster has database 0 only")
    who = f"{several['who']}@" if several["who"] else ""
    plain = f"{scheme}://{who}localhost/{database}" + (f"?{urlencode(query)}" if query else "")
    return RedisUrl(kind, plain, nodes, service, user, password)


def _single(url: str) -> RedisUrl:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("can't be read as a URL such as redis://127.0.0.1:6379/0") from None
    if parts.scheme not in _SINGLE:
        raise ValueError(_EXPECTED)
    if parts.scheme == "unix":
        if not parts.path.strip("/"):
            raise ValueError("expected the path of a socket, such as unix:///run/redis.sock")
    elif not parts.hostname or port == 0 or not re.fullmatch(r"(/[0-9]*)?", parts.path):
        raise ValueError("expected host, port and database, such as redis://127.0.0.1:6379/0")
    _known(dict(parse_qsl(parts.query)), parts.scheme)
    return RedisUrl(Kind.SERVER, url)


def _known(query: dict[str, str], scheme: str) -> None:
    for name, value in query.items():
        if name not in _OPTIONS:
            raise ValueError(f"{name} is no option of it; there are {', '.join(sorted(_OPTIONS))}")
        if name.startswith("ssl_") and scheme != "rediss":
            raise ValueError(f"{name} is an option of TLS: the address begins with rediss")
        if not _OPTIONS[name].fullmatch(value):
            raise ValueError(f"{name}: expected {_HINTS[name]}")


def _node(text: str, kind: Kind) -> Address:
    """`host`, `host:port`, `[::1]:port`."""
    with_port = text if re.search(r":[^\]]*$", text) else f"{text}:{_PORTS[kind]}"
    try:
        node = Address.parse(with_port)
    except ValueError:
        node = Address("", 0)
    if not node.host or not node.port:
        raise ValueError(f"{text!r} is no host and port; expected an address such as {_EXAMPLES[kind]}")
    return node


def masked(url: str) -> str:
    """The address without its passwords."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        user, _, host = parts.netloc.rpartition("@")
        url = urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{host}"))
    return re.sub(r"(?<=password=)[^&#]*", "***", url)
