"""docker-compose.yaml against the code: commands, ports, variables, files, and what a container may do."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import msgspec
import pytest
import yaml
from msgspec import Meta, Struct

from common.config import load
from common.settings import Settings
from common.units import Address, Duration
from dispatcher.destinations import kinds
from ops import signature
from ops.check import warnings
from ops.cli import COMMANDS, main
from tests.rules.pages import ROOT

FILE = ROOT / "docker-compose.yaml"
MODULES = ("ingest", "dispatcher")
USER = re.search(r"^USER (\S+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)

Time = Annotated[str, Meta(pattern=r"^\d+(s|m)$")]
Bytes = Annotated[str, Meta(pattern=r"^\d+[KMG]$")]


class Strict(Struct, forbid_unknown_fields=True):
    """What Compose knows, as far as it is used here."""


class Healthcheck(Strict):
    test: list[str] = []
    interval: Time = "30s"
    timeout: Time = "30s"
    retries: int = 3
    start_period: Time = "0s"
    disable: bool = False


class Logging(Strict):
    driver: Literal["json-file"]
    options: dict[str, str]


class Limits(Strict):
    memory: Bytes


class Resources(Strict):
    limits: Limits


class Deploy(Strict):
    resources: Resources
    replicas: int = 1


class Dependency(Strict):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class Build(Strict):
    context: str


class Service(Strict):
    image: str
    user: Annotated[str, Meta(pattern=r"^[1-9]\d*:\d+$")]  # a number, and not root's
    read_only: Literal[True]
    cap_drop: tuple[Literal["ALL"]]
    security_opt: tuple[Literal["no-new-privileges:true"]]
    restart: Literal["unless-stopped"]
    logging: Logging
    deploy: Deploy
    build: Build | None = None
    command: list[str] = []
    ports: list[Annotated[str, Meta(pattern=r"^127\.0\.0\.1:\d+:\d+$")]] = []
    environment: dict[str, str] = {}
    volumes: list[str] = []
    tmpfs: list[str] = []
    depends_on: dict[str, Dependency] = {}
    healthcheck: Healthcheck | None = None
    stop_grace_period: Time = "10s"

    @property
    def ours(self) -> bool:
        """Whether it is made from our image."""
        return self.image.startswith("redispatch:")


class Compose(Strict):
    services: dict[str, Service]
    volumes: dict[str, Strict]


def compose() -> Compose:
    """The file with the defaults of its variables, without what is only there to be referred to."""

    def default(match: re.Match[str]) -> str:
        return match[2]

    text = re.sub(r"\$\{(\w+):-([^}]*)\}", default, FILE.read_text("utf-8"))
    assert "${" not in text
    content = {name: part for name, part in yaml.safe_load(text).items() if not name.startswith("x-")}
    return msgspec.convert(content, Compose)


COMPOSE = compose()
SERVICES = COMPOSE.services
OURS = {name: service for name, service in SERVICES.items() if service.ours}

each = pytest.mark.parametrize("name", SERVICES)
each_of_ours = pytest.mark.parametrize("name", OURS)


def settings(service: Service) -> Settings:
    """What that service gets by its file and its variables and the image's."""
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    image = dict(re.findall(r"(REDISPATCH_\w+_LISTEN)=(\S+)", dockerfile))
    return load(str(ROOT / "compose/redispatch.yaml"), image | service.environment, kinds)


def configured() -> dict[str, Service]:
    """Those that read the configuration."""
    return {name: service for name, service in OURS.items() if "redispatch.yaml" in str(service.volumes)}


def test_all_are_there() -> None:
    services = {"valkey", "ingest", "dispatcher", "console", "receiver", "agent", "prometheus", "grafana"}
    assert SERVICES.keys() == services
    assert SERVICES["dispatcher"].deploy.replicas == 2
    assert USER
    assert {service.user for service in OURS.values()} == {USER[1]}


@each
def test_what_is_mounted_is_there(name: str) -> None:
    for volume in SERVICES[name].volumes:
        source, _, rest = volume.partition(":")
        if source.startswith("./"):
            assert (ROOT / source).exists(), volume
            assert rest.endswith(":ro"), volume
        else:
            assert source in COMPOSE.volumes, volume


@each
def test_what_is_waited_for_can_come(name: str) -> None:
    for other, dependency in SERVICES[name].depends_on.items():
        awaited = SERVICES[other]
        if dependency.condition == "service_healthy" and not awaited.ours:
            assert awaited.healthcheck
            assert awaited.healthcheck.test
        assert not (awaited.healthcheck and awaited.healthcheck.disable)


@each
def test_the_version_is_fixed(name: str) -> None:
    service = SERVICES[name]
    assert service.ours == (service.build is not None)
    assert service.ours or re.search(r":v?\d+\.\d+\.\d+$", service.image), service.image


@each
def test_its_health_is_asked_where_it_listens(name: str) -> None:
    service = SERVICES[name]
    told = " ".join(service.healthcheck.test) if service.healthcheck else ""
    ports = {port.rpartition(":")[2] for port in service.ports}
    asked = set(re.findall(r"127\.0\.0\.1:(\d+)", told))
    if not service.ours:
        assert asked == ports
    elif told:
        assert asked == {str(address(service.command).port)}


def address(command: list[str]) -> Address:
    """Where `redispatch receive` is told to listen."""
    return Address.parse(command[command.index("--listen") + 1])


@each_of_ours
def test_its_command_is_one_of_ours(name: str) -> None:
    words = OURS[name].command
    if words[:2] == ["python", "-m"]:
        assert words[2:] in [[module] for module in MODULES]
        return
    assert words[0] == "redispatch"
    assert words[1] in COMMANDS
    command = main.get_command(click.Context(main), words[1])
    assert command
    command.make_context(words[1], words[2:])  # raises when there is no such option


@each_of_ours
def test_its_variables_are_known(name: str) -> None:
    service = OURS[name]
    settings_of = {variable for variable in service.environment if variable.startswith("REDISPATCH_")}
    if name in configured():
        assert settings(service)  # one that is no setting is refused
    else:
        command = main.get_command(click.Context(main), service.command[1])
        assert command
        known = {param.envvar for param in command.params if isinstance(param, click.Option)}
        assert settings_of | service.environment.keys() <= known


@pytest.mark.parametrize("name", configured())
def test_its_configuration_is_good(name: str) -> None:
    read = settings(SERVICES[name])
    assert list(warnings(read)) == []
    assert read.redis.url == "redis://valkey:6379/0"
    [objects] = [v for v in SERVICES[name].volumes if v.startswith("objects:")]
    assert read.objects.url.startswith(objects.partition(":")[2])
    listens = {"ingest": read.ingest.listen, "console": read.console.listen}
    for port in SERVICES[name].ports:
        assert Address.parse(listens[name]).port == int(port.rpartition(":")[2])
    grace = Duration(int(SERVICES[name].stop_grace_period.rstrip("s")))
    assert name != "dispatcher" or grace > read.dispatcher.drain_timeout


def test_they_know_each_other() -> None:
    read = settings(SERVICES["ingest"])
    [token], [visitor] = read.tokens, read.console.tokens
    agent, receiver = SERVICES["agent"], SERVICES["receiver"]
    told = hashlib.sha256(agent.environment["REDISPATCH_TOKEN"].encode()).hexdigest()
    assert token.sha256.reveal() == told
    assert visitor.sha256.reveal() == told  # of what docs/deploy.md names
    assert f"http://ingest:{Address.parse(read.ingest.listen).port}" in agent.command
    [hook] = [destination for destination in read.destinations if destination.type == "webhook"]
    specific: Any = hook
    assert specific.url.reveal() == f"http://receiver:{address(receiver.command).port}/"
    assert [secret.reveal() for secret in specific.secrets] == [receiver.environment["RECEIVE_SECRETS"]]
    assert signature.key_of(receiver.environment["RECEIVE_SECRETS"])


def test_prometheus_asks_where_they_listen() -> None:
    read = settings(SERVICES["ingest"])
    asked = yaml.safe_load((ROOT / "grafana/prometheus/prometheus.yaml").read_text("utf-8"))
    places = {
        name: sd["port"]
        for job in asked["scrape_configs"]
        for sd in job.get("dns_sd_configs", [])
        for name in sd["names"]
    }
    listens = {"ingest": read.ingest.listen, "dispatcher": read.dispatcher.listen}
    assert places == {name: Address.parse(listen).port for name, listen in listens.items()}
    assert places.keys() <= SERVICES.keys()


def test_grafana_looks_where_things_are_mounted() -> None:
    places = {volume.split(":")[1]: Path(volume.split(":")[0]) for volume in SERVICES["grafana"].volumes}
    provider = ROOT / "grafana/provisioning/dashboards/redispatch.yaml"
    [told] = yaml.safe_load(provider.read_text("utf-8"))["providers"]
    assert places[told["options"]["path"]] == Path("./grafana/dashboards")
    source = ROOT / "grafana/provisioning/datasources/prometheus.yaml"
    [database] = yaml.safe_load(source.read_text("utf-8"))["datasources"]
    assert database["url"] == f"http://prometheus:{SERVICES['prometheus'].ports[0].rpartition(':')[2]}"


def test_valkey_keeps_what_it_acknowledges() -> None:
    command = SERVICES["valkey"].command
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    most, limit = options["--maxmemory"], SERVICES["valkey"].deploy.resources.limits.memory
    assert 2 * int(most.removesuffix("mb")) <= int(
        limit.removesuffix("M")
    )  # a rewrite of its file may double it
