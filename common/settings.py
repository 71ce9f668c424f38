"""Every setting with its default, on one page. Loaded and checked by `config.py`; frozen afterwards.

Sections and names are those of the configuration file. Durations are seconds, sizes bytes, rates events
per second (`units.py`). `docs/settings.md` is drawn from this page: the text behind a field's name there
is the `Meta(description=...)` here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from common.units import Duration, Rate, Secret, Size

Name: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$", description="a name")]
Count: TypeAlias = Annotated[int, Meta(ge=1)]


class Redis(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where Redis or Valkey is."""

    url: Annotated[
        str,
        Meta(description="one server, sentinels, a Cluster ([redis.md](redis.md)); passwords print as ***"),
    ] = "redis://127.0.0.1:6379/0"
    namespace: Annotated[Name, Meta(description="first part of every key")] = "redispatch"
    allow_eviction: Annotated[bool, Meta(description="start although maxmemory-policy may evict keys")] = (
        False
    )
    timeout: Annotated[
        Duration, Meta(description="for one command's answer; ingest answers 503 after it")
    ] = Duration(0.8)


class ServerTls(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS of a server: files in PEM, relative to this one; what is replaced is taken within seconds."""

    cert: Annotated[str | None, Meta(description="its certificate, with the chain behind it")] = None
    key: Annotated[str | None, Meta(description="the certificate's key, without a password")] = None
    client_ca: Annotated[
        str | None, Meta(description="who vouches for clients; then each needs a certificate")
    ] = None


class Ingest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP service that takes alerts and readings."""

    listen: Annotated[str, Meta(description="address:port")] = "127.0.0.1:8080"
    workers: Annotated[Annotated[int, Meta(ge=1, le=256)], Meta(description="processes on one machine")] = 1
    max_body: Annotated[Size, Meta(description="bytes of one request, decompressed")] = Size(16 * 1024**2)
    max_alert: Annotated[Size, Meta(description="bytes of one alert or reading")] = Size(1024**2)
    inline_limit: Annotated[Size, Meta(description="a larger stored form goes to the object store")] = Size(
        8192
    )
    durability: Annotated[
        Literal["written", "replicated", "fsynced"],
        Meta(description="what a 2xx means: written to memory, on `replicas` replicas, or on disk"),
    ] = "written"
    replicas: Annotated[Count, Meta(description="how many replicas `replicated` waits for")] = 1
    durability_timeout: Annotated[Duration, Meta(description="how long it waits; 503 after it")] = Duration(1)
    allow_anonymous: Annotated[bool, Meta(description="listen beyond loopback without tokens")] = False
    tls: Annotated[ServerTls, Meta(description="speaks TLS when there is a certificate")] = ServerTls()


class Dispatcher(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The service that delivers."""

    listen: Annotated[str, Meta(description="address:port of its probes and metrics")] = "127.0.0.1:8081"
    visibility_timeout: Annotated[
        Duration, Meta(description="an entry idle for longer is taken from its consumer")
    ] = Duration(60)
    max_deliveries: Annotated[
        Annotated[int, Meta(ge=3)],
        Meta(description="how often an entry may be handed out before it dies (a pill that kills workers)"),
    ] = 5
    drain_timeout: Annotated[Duration, Meta(description="how long SIGTERM waits for what was sent")] = (
        Duration(25)
    )


class Visitor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody who may look at the console."""

    name: Annotated[Name, Meta(description="stands in the log with all that is done")]
    sha256: Annotated[Secret, Meta(description="SHA-256 of the token to sign in with, in hex")]
    read_only: Annotated[bool, Meta(description="may look, and change nothing")] = False


class Console(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The page for whoever is on call."""

    listen: Annotated[str, Meta(description="address:port")] = "127.0.0.1:8090"
    tokens: Annotated[list[Visitor], Meta(description="who may sign in; without any, everybody is in")] = []
    read_only: Annotated[bool, Meta(description="nobody changes anything here")] = False
    allow_anonymous: Annotated[
        bool, Meta(description="listen beyond loopback without tokens, which wants `hosts`")
    ] = False
    hosts: Annotated[
        list[str], Meta(description="names that browsers reach it by, such as `alerts.example`; any if none")
    ] = []
    session: Annotated[Duration, Meta(description="after it one has to sign in again")] = Duration(12 * 3600)


class Queue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Caps, per destination."""

    max_depth: Annotated[Count, Meta(description="waiting and retrying deliveries")] = 100_000
    max_dead: Annotated[Count, Meta(description="dead letters")] = 100_000


class Dedupe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How repeats are told from news."""

    window: Annotated[Duration, Meta(description="events of one incident within it are one alert")] = (
        Duration(60)
    )
    remember: Annotated[Duration, Meta(description="how long a key is remembered")] = Duration(86400)
    repeat_interval: Annotated[
        Duration, Meta(description="a firing alert of Prometheus is sent again after it")
    ] = Duration(4 * 3600)


class Readings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The capped stream of readings."""

    keep: Annotated[Count, Meta(description="readings kept, about")] = 100_000


class Objects(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where large alerts are kept."""

    url: Annotated[
        str, Meta(description="a path relative to this file, or s3://, gs://, az://, memory://")
    ] = "data/objects"


class Canary(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Synthetic alerts on each destination's way, which end before its receiver."""

    every: Annotated[Duration | None, Meta(description="one so often, up to 1m; none at all when absent")] = (
        None
    )


class Token(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sender."""

    name: Name
    sha256: Annotated[Secret, Meta(description="SHA-256 of the token, in hex")]
    rate: Annotated[Rate | None, Meta(description="alerts per second for the whole fleet")] = None


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Turns readings into alerts."""

    name: Annotated[Name, Meta(description="the alert's name")]
    metric: Annotated[str, Meta(min_length=1, max_length=255, description="readings of this metric")]
    when: Annotated[str, Meta(description='fires, such as ">= 100"; one of >= > <= < == != and a number')]
    clear: Annotated[str | None, Meta(description='resolves, such as "< 90"; in between nothing changes')] = (
        None
    )
    severity: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    summary: Annotated[str | None, Meta(description="text with {host} {metric} {value} and label names")] = (
        None
    )
    labels: Annotated[dict[str, str], Meta(description="only readings with these labels")] = {}
    by: Annotated[list[str] | None, Meta(description="labels that make an incident; all when absent")] = None


Expression: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096)]


class HookAlert(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an alert's fields are in an item: JMESPath expressions; what finds nothing is absent."""

    host: Annotated[Expression, Meta(description="what is concerned")]
    name: Annotated[Expression, Meta(description="what is wrong with it")]
    severity: Annotated[Expression | None, Meta(description="`info`, `warning`, `error`, `critical`")] = None
    status: Annotated[Expression | None, Meta(description="`firing` or `resolved`")] = None
    summary: Annotated[Expression | None, Meta(description="a sentence for people")] = None
    value: Annotated[Expression | None, Meta(description="a number, or a text that is one")] = None
    timestamp: Annotated[Expression | None, Meta(description="when it happened; now when absent")] = None
    starts_at: Annotated[Expression | None, Meta(description="when the episode began")] = None
    ends_at: Annotated[Expression | None, Meta(description="when it ended")] = None
    url: Annotated[Expression | None, Meta(description="where to look")] = None
    labels: Annotated[dict[str, Expression], Meta(description="what else tells incidents apart")] = {}
    annotations: Annotated[dict[str, Expression], Meta(description="what people may want to know")] = {}


class HookReading(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same for a reading."""

    host: Annotated[Expression, Meta(description="where it was measured")]
    metric: Annotated[Expression, Meta(description="what was measured")]
    value: Annotated[Expression, Meta(description="a number, or a text that is one")]
    timestamp: Annotated[Expression | None, Meta(description="when it was measured; now when absent")] = None
    labels: Annotated[dict[str, Expression], Meta(description="such as the device")] = {}


class Hook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `POST /v1/hooks/{name}` makes of any other sender's JSON: alerts or readings."""

    name: Annotated[Name, Meta(description="the end of its path")]
    items: Annotated[
        Expression | None,
        Meta(description="where the items are; else the body is one, or an array"),
    ] = None
    form: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)] | None,
        Meta(description="field of a form that has the JSON"),
    ] = None
    alert: Annotated[HookAlert | None, Meta(description="this, or `reading`")] = None
    reading: Annotated[HookReading | None, Meta(description="this, or `alert`")] = None
    values: Annotated[
        dict[str, dict[str, str]],
        Meta(description="by field, what the sender's words mean here; `*`: any other"),
    ] = {}


class Retry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How hard a destination is tried; what is absent comes from the preset."""

    preset: Annotated[Literal["page", "webhook"], Meta(description="where the other four come from")] = (
        "webhook"
    )
    attempts: Annotated[Count | None, Meta(description="failures before it dies")] = None
    base: Annotated[
        Duration | None, Meta(description="backoff is min(cap, base * 2**(attempt-1)), full jitter")
    ] = None
    cap: Annotated[Duration | None, Meta(description="longest backoff")] = None
    max_age: Annotated[Duration | None, Meta(description="dies when older than this")] = None


class Breaker(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a destination that fails is left alone."""

    failures: Annotated[Count, Meta(description="failures in a row that close the gate")] = 10
    open: Annotated[Duration, Meta(description="how long it stays closed")] = Duration(30)


class Batch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request for a storm."""

    max: Annotated[Annotated[int, Meta(ge=1, le=500)], Meta(description="alerts in one request")] = 20
    wait: Annotated[Duration, Meta(description="how long to wait for more")] = Duration(5)
    by: Annotated[
        list[str],
        Meta(description="only alerts that agree in these: fields such as name or host, else labels"),
    ] = []


class Destination(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where alerts go: what every type has. Each type adds its own, below."""

    name: Name
    type: Annotated[str, Meta(description="what kind of destination it is")]
    timeout: Annotated[Duration, Meta(description="for one attempt")] = Duration(10)
    max_in_flight: Annotated[Count, Meta(description="attempts under way per replica")] = 64
    retry: Annotated[Retry, Meta(description="how hard it is tried")] = Retry()
    retry_after_cap: Annotated[Duration, Meta(description="longest Retry-After that is honoured")] = Duration(
        3600
    )
    rate: Annotated[Rate | None, Meta(description="attempts per second for the whole fleet")] = None
    breaker: Annotated[Breaker, Meta(description="when it is left alone")] = Breaker()
    batch: Annotated[Batch | None, Meta(description="one request for a storm")] = None

    @property
    def follow_ups(self) -> Sequence[str]:
        """Names of the destinations that get what this one makes of an alert."""
        return ()


class Match(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an alert must be like; all that is given must hold. A list means any of them."""

    host: str | list[str] | None = None
    name: str | list[str] | None = None
    severity: str | list[str] | None = None
    status: Literal["firing", "resolved"] | None = None
    source: str | list[str] | None = None
    labels: dict[str, str | list[str]] = {}


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"continue_": "continue"}):
    """Sends what matches to destinations; the first match wins."""

    to: Annotated[list[Name], Meta(min_length=1, description="destinations")]
    match: Annotated[Match, Meta(description="what it must be like; everything when absent")] = Match()
    continue_: Annotated[bool, Meta(description="go on to the next route as well")] = False


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration."""

    redis: Redis = Redis()
    ingest: Ingest = Ingest()
    dispatcher: Dispatcher = Dispatcher()
    console: Console = Console()
    queue: Queue = Queue()
    dedupe: Dedupe = Dedupe()
    readings: Readings = Readings()
    objects: Objects = Objects()
    canary: Canary = Canary()
    tokens: list[Token] = []
    rules: list[Rule] = []
    hooks: list[Hook] = []
    destinations: list[Destination] = []
    routes: list[Route] = []
