"""Ways: policies let each service reach what it has to, and those who have to reach it.

Takes a container of ours; yields what is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from common import redis_url
from common.stored import scheme
from common.units import Address, Secret
from k8s.check.bundle import Json, fits, name
from k8s.check.network import lets_in, reaches, ways
from k8s.check.ours import Ours
from k8s.check.pods import Said

_PROMETHEUS = {"kubernetes.io/metadata.name": "monitoring"}
_NOBODY: Json = {"matchLabels": {"": ""}}


def closed(ours: Ours) -> Said:
    """What it has to reach, and who has to reach it."""
    if ours.settings is None:
        return
    for protocol in ("UDP", "TCP"):
        if not any(ways(ours.bundle, ours.pod, "Egress", 53, protocol)):
            yield "", f"no NetworkPolicy lets it ask DNS by {protocol}"
    yield from (("", words) for words in _redis(ours))
    for what, port in _remote(ours):
        if not any(ways(ours.bundle, ours.pod, "Egress", port)):
            yield "", f"no NetworkPolicy lets it reach {what} at port {port}"
    port = ours.listen.port if ours.listen is not None else 0
    if any(ours.bundle.of("PodMonitor")) and not lets_in(ours.bundle, ours.pod, port, _PROMETHEUS):
        yield "", f"no NetworkPolicy lets Prometheus scrape port {port}"
    if ours.service == "ingest" and not _has_senders(ours, port):
        yield "", f"no NetworkPolicy lets anybody send to port {port}"


def _has_senders(ours: Ours, port: int) -> bool:
    """Whether anybody but Prometheus may connect."""
    told = [rule.get("from", [{}]) for _, rule in ways(ours.bundle, ours.pod, "Ingress", port)]
    return any(
        not fits(peer.get("namespaceSelector", _NOBODY), _PROMETHEUS) for peers in told for peer in peers
    )


def _redis(ours: Ours) -> Iterator[str]:
    url = redis_url.parse(ours.settings.redis.url) if ours.settings is not None else None
    nodes = list(url.nodes) if url is not None else []
    if url is not None and not nodes:
        parts = urlsplit(url.plain)
        nodes = [Address(parts.hostname, parts.port or 6379)] if parts.hostname else []
    for node in nodes:
        yield from _server(ours, node.host, node.port)


def _server(ours: Ours, host: str, port: int) -> Iterator[str]:
    """Redis, or a sentinel; a name without a dot is a Service beside it."""
    if Address(host, port).loopback:
        yield "redis.url is loopback, where only this container listens"
        return
    if "." in host or ":" in host:
        if not any(ways(ours.bundle, ours.pod, "Egress", port)):
            yield f"no NetworkPolicy lets it reach Redis at port {port}"
        return
    service = ours.bundle.find("Service", host, ours.pod.namespace)
    if service is None:
        yield f"redis.url names {host}, and there is no such Service"
        return
    if port not in [each["port"] for each in service["spec"].get("ports", [])]:
        yield f"redis.url names port {port}, and Service {host} has none such"
    for pod in ours.bundle.selected({"matchLabels": service["spec"].get("selector", {})}, ours.pod.namespace):
        if not reaches(ours.bundle, ours.pod, pod, port):
            yield f"no NetworkPolicy lets it reach {name(pod.owner)} at port {port}"


def _remote(ours: Ours) -> Iterator[tuple[str, int]]:
    settings = ours.settings
    if settings is None:
        return
    if scheme(settings.objects.url) in ("s3", "gs", "az"):
        yield "the bucket", 443
    for destination in settings.destinations if ours.service == "dispatcher" else ():
        url = getattr(destination, "url", None)
        parts = urlsplit(url.reveal() if isinstance(url, Secret) else str(url or ""))
        if parts.hostname:
            yield destination.name, parts.port or (80 if parts.scheme == "http" else 443)
