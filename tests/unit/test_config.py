"""Loading a configuration: values, references, overrides; every fault is told at once, with its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from common.config import ConfigError, load
from common.settings import Match, Settings
from common.units import Duration, Secret, Size
from dispatcher.destinations import kinds
from dispatcher.destinations.webhook import Settings as Webhook

Load = Callable[..., Settings]
Faults = Callable[..., list[str]]


@pytest.fixture
def loaded(tmp_path: Path) -> Load:
    """Writes a text to r.yaml and loads it; keywords are the environment."""

    def write_and_load(text: str, **environ: str) -> Settings:
        file = tmp_path / "r.yaml"
        file.write_text(dedent(text), encoding="utf-8")
        return load(str(file), environ, kinds)

    return write_and_load


@pytest.fixture
def faults(loaded: Load, tmp_path: Path) -> Faults:
    """The faults of a text, one line each, with the directory left out."""

    def of(text: str, **environ: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            loaded(text, **environ)
        assert str(caught.value) == "\n".join(map(str, caught.value.faults))
        return str(caught.value).replace(f"{tmp_path}/", "").splitlines()

    return of


def test_what_is_absent_has_its_default(loaded: Load) -> None:
    assert loaded("queue: {max_depth: 5}\ningest:\ntokens:\n").ingest == Settings().ingest


def test_values(loaded: Load) -> None:
    settings = loaded("""
        ingest: {max_body: 2MiB, max_alert: 5000, durability: fsynced}
        dispatcher: {drain_timeout: 1m30s, visibility_timeout: 90}
        rules:
          - {name: r, metric: m, when: "> 5", by: [disk], labels: {disk: a}, severity: error}
        destinations:
          - name: a
            type: webhook
            url: https://h.example/x
            secrets: [plain]
            headers: {X-A: "1"}
            allow_private: true
            retry: {preset: page, attempts: 3}
        routes:
          - {match: {host: [a, b], labels: {x: y, z: [p, q]}, status: firing}, to: [a], continue: true}
          - {to: [a]}
    """)
    assert settings.ingest.max_body == Size(2 * 1024**2)
    assert settings.dispatcher.drain_timeout == settings.dispatcher.visibility_timeout == Duration(90)
    assert settings.rules[0].by == ["disk"]
    (to,) = settings.destinations
    assert isinstance(to, Webhook)
    assert to.url == Secret("https://h.example/x")
    assert to.headers == {"X-A": Secret("1")}
    assert to.retry.attempts == 3
    assert settings.routes[0].match == Match(
        host=["a", "b"], labels={"x": "y", "z": ["p", "q"]}, status="firing"
    )
    assert [route.continue_ for route in settings.routes] == [True, False]


def test_anchors_and_merges(loaded: Load) -> None:
    settings = loaded("""
        destinations:
          - &common {name: a, type: webhook, url: "http://h/", timeout: 3s}
          - {<<: *common, name: b}
    """)
    assert [(d.name, d.timeout) for d in settings.destinations] == [("a", 3.0), ("b", 3.0)]


# What can't be read at all


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "r.yaml: is empty; docs/example.yaml shows what may stand here"),
        ("# nothing\n", "r.yaml: is empty; docs/example.yaml shows what may stand here"),
        ("- a\n", "r.yaml:1: expected sections such as `redis:` and `destinations:`"),
        ("\nhello\n", "r.yaml:2: expected sections such as `redis:` and `destinations:`"),
        ("a: [1\nb: 2", "r.yaml:2: is not YAML: expected ',' or ']', but got ':', column 2"),
        ("a: 1\n---\nb: 2", "r.yaml:2: is not YAML: but found another document, column 1"),
        ("a: *hunter2", "r.yaml:1: is not YAML: found undefined alias, column 4"),
        ("a: \x00", "r.yaml: is not YAML: special characters are not allowed"),
        ("[" * 500, "r.yaml: is nested too deeply"),
        ("redis: &a\n  x: *a\n", "r.yaml:2 redis.x.x...: is nested too deeply"),
    ],
)
def test_one_clear_fault(faults: Faults, text: str, fault: str) -> None:
    assert faults(text) == [fault]


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_bytes(b"a: \xff\xfe\n")
    with pytest.raises(ConfigError, match="is not YAML"):
        load(str(file), {})


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(str(tmp_path / "no.yaml"), {})
    assert [fault.place for fault in caught.value.faults] == [f"{tmp_path}/no.yaml"]
    assert "No such file or directory; --config or REDISPATCH_CONFIG" in str(caught.value)


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        load(str(tmp_path), {})


def test_the_path_comes_from_the_environment_else_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redispatch.yaml").write_text("queue: {max_depth: 1}")
    (tmp_path / "other.yaml").write_text("queue: {max_depth: 2}")
    assert load(None, {}).queue.max_depth == 1
    assert load(None, {"REDISPATCH_CONFIG": "other.yaml"}).queue.max_depth == 2
    assert load("redispatch.yaml", {"REDISPATCH_CONFIG": "other.yaml"}).queue.max_depth == 1


# All faults at once


def test_every_fault_with_its_place(faults: Faults) -> None:
    assert faults("""\
        redis: {namespce: x}
        ingest:
          max_body: lots
          allow_anonymous: "yes"
        queue: 5
        rules:
          - {metric: m, when: often}
        destinations:
          - name: a b
            type: webhok
          - name: c
            type: webhook
            timeout: 10 apples
            retry: {attempts: 0, preset: pager}
          - stdout
        routes:
          - {to: [c, 5], match: {status: open}}
          - {to: []}
    """) == [
        "r.yaml:1 redis.namespce: is unknown; did you mean namespace? "
        "(url, namespace, allow_eviction, timeout are known)",
        "r.yaml:3 ingest.max_body: expected a size such as 8KiB or 16MiB, got 'lots'",
        "r.yaml:4 ingest.allow_anonymous: expected true or false, got 'yes'",
        "r.yaml:5 queue: expected a section with names, such as `name: value`, got a single value",
        "r.yaml:7 rules[0].name: is missing",
        "r.yaml:7 rules[0].when: expected one of >= > <= < == != and a number, such as '>= 100'",
        "r.yaml:9 destinations[0].name: "
        "expected a name of letters, digits, _ and - (63 at most, no _ or - in front), got 'a b'",
        "r.yaml:10 destinations[0].type: is unknown; did you mean webhook? "
        "(webhook, slack, pagerduty, apprise, summary, stdout, discard are known)",
        "r.yaml:11 destinations[1].url: is missing; a webhook needs one",
        "r.yaml:13 destinations[1].timeout: expected a duration such as 10s, 5m or 76h, got '10 apples'",
        "r.yaml:14 destinations[1].retry.attempts: expected a whole number of 1 or more, got '0'",
        "r.yaml:14 destinations[1].retry.preset: "
        "expected one of page, webhook; did you mean page?, got 'pager'",
        "r.yaml:15 destinations[2]: expected a section with names, such as `name: value`, got a single value",
        "r.yaml:17 routes[0].to[1]: expected a text; put it in quotes, got '5'",
        "r.yaml:17 routes[0].match.status: expected one of firing, resolved, got 'open'",
        "r.yaml:18 routes[1].to: is empty",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("queue: {max_depth: 1.5}", "queue.max_depth: expected a whole number, got '1.5'"),
        ("queue: {max_depth: true}", "queue.max_depth: expected a whole number, got 'true'"),
        ("queue: {max_depth: '5'}", "queue.max_depth: expected a whole number, got '5'"),
        ("queue: {max_depth: [5]}", "queue.max_depth: expected a whole number, got a list"),
        ("queue: {max_depth: }", "queue.max_depth: expected a whole number, got nothing"),
        ("queue: {max_depth: 99999999999999999999}", "queue.max_depth: expected a smaller number, got '9"),
        ("redis: {timeout: [1]}", "redis.timeout: expected a duration, got a list"),
        ("redis: {timeout: -1}", "redis.timeout: expected a duration between zero and ten years, got '-1'"),
        ("redis: {url: no}", "redis.url: expected a text; put it in quotes, got 'no'"),
        ("redis: {url: {}}", "redis.url: expected a text, got names with values"),
        (
            "ingest: {durability: {}}",
            "ingest.durability: expected one of fsynced, replicated, written, got names",
        ),
        (
            "destinations: {name: a}",
            "destinations: expected a list, such as `[a, b]` or lines that begin with",
        ),
        ("redis: {namespace: !x a}", "redis.namespace: has a YAML tag that is not known here"),
        ("redis: {timeout: !!int a}", "redis.timeout: has a YAML tag that is not known here"),
        ("redis: {? [a] : b}", "redis.?: expected a name, got a list or a mapping"),
        ("redis: {<<: 5}", "redis: `<<` takes a mapping, or a list of them"),
        ("redis: {url: a, url: b}", "redis.url: is there twice, first in line 1"),
        ("x: 1", "x: is unknown"),
        (
            "rules: [{name: a, metric: '', when: '> 1'}]",
            "rules[0].metric: expected 1 to 255 characters, got ''",
        ),
    ],
)
def test_a_fault_of_shape(faults: Faults, text: str, fault: str) -> None:
    (line,) = faults(text)
    assert line.startswith(f"r.yaml:1 {fault}")


# References


def test_references_are_filled_in(loaded: Load) -> None:
    settings = loaded(
        """
        redis: {url: "redis://:${PASS}@h:${PORT}/0", timeout: "${TIMEOUT}"}
        queue: {max_depth: "${DEPTH}"}
        ingest: {allow_anonymous: "${ANONYMOUS}"}
        destinations: [{name: a, type: webhook, url: "${URL}"}]
        rules: [{name: a, metric: m, when: "> 1", summary: "$${PASS} $5"}]
        """,
        PASS="123",
        PORT="6379",
        TIMEOUT="5",
        DEPTH="7",
        ANONYMOUS="true",
        URL="https://h/${PASS}",
    )
    assert settings.redis.url == "redis://:123@h:6379/0"
    assert (settings.redis.timeout, settings.queue.max_depth) == (5.0, 7)
    assert settings.ingest.allow_anonymous
    (to,) = settings.destinations
    assert isinstance(to, Webhook)
    assert to.url == Secret("https://h/${PASS}")
    assert settings.rules[0].summary == "${PASS} $5"


def test_references_that_lead_nowhere(faults: Faults) -> None:
    assert faults(
        """\
        redis: {url: "${REDIS}", namespace: "${EMPTY}"}
        destinations:
          - {name: a, type: webhook, url: "http://h/${A}${B}", secrets: ["${}", "${EMPTY}"]}
        """,
        EMPTY="",
    ) == [
        "r.yaml:1 redis.url: the environment variable REDIS is not set",
        "r.yaml:1 redis.namespace: expected a name of letters, digits, _ and - "
        "(63 at most, no _ or - in front), got ***",
        "r.yaml:3 destinations[0].url: the environment variable A is not set",
        "r.yaml:3 destinations[0].secrets[0]: a reference is written ${NAME}; $${ stands for a plain ${",
        "r.yaml:3 destinations[0].secrets[1]: is empty",
    ]


def test_secrets_from_files(loaded: Load, tmp_path: Path) -> None:
    (tmp_path / "near").write_text("one\n")
    (tmp_path / "far").write_text("two")
    settings = loaded(f"""
        destinations:
          - {{name: a, type: webhook, url: "http://h/", secrets: ["file:near", "file:{tmp_path}/far"]}}
    """)
    (to,) = settings.destinations
    assert isinstance(to, Webhook)
    assert to.secrets == [Secret("one"), Secret("two")]


def test_secret_files_that_are_none(faults: Faults, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    assert faults("""\
        destinations:
          - name: a
            type: webhook
            url: "http://h/"
            secrets: ["file:missing", "file:empty", "file:binary", "file:.."]
    """) == [
        "r.yaml:5 destinations[0].secrets[0]: missing can't be read: No such file or directory",
        "r.yaml:5 destinations[0].secrets[1]: empty is empty",
        "r.yaml:5 destinations[0].secrets[2]: binary does not hold a text",
        "r.yaml:5 destinations[0].secrets[3]: .. can't be read: Is a directory",
    ]


def test_no_fault_shows_a_secret(faults: Faults) -> None:
    lines = faults(
        """
        redis: {url: "http://:hunter2@h", timeout: "${SECRET}", namespace: "${SECRET} x"}
        queue: {max_depth: "${SECRET}", max_dead: "${SECRET}"}
        ingest: {durability: "${SECRET}", listen: "${SECRET}"}
        destinations:
          - {name: a, type: webhook, url: "ftp://hunter2", secrets: hunter2, headers: hunter2}
          - {name: b, type: webhook, url: "http://hunter2 x", headers: {a: "hunter2\\n"}}
          - {name: d, type: webhook, url: "http://h", secrets: ["whsec_hunter2"]}
          - {name: c, type: webhook, url: ["hunter2"], secrets: [[hunter2]], headers: {a: [hunter2]}}
          - https://hooks.example/hunter2
        """,
        SECRET="hunter2",
    )
    assert len(lines) == 17
    assert not [line for line in lines if "hunter2" in line]


# Overrides


def test_overrides(loaded: Load) -> None:
    settings = loaded(
        "redis: {url: '${UNSET}', namespace: a}\ningest:\nqueue: {max_depth: 5}\n",
        REDISPATCH_REDIS_URL="redis://other:1/2",
        REDISPATCH_INGEST_LISTEN="0.0.0.0:80",
        REDISPATCH_INGEST_ALLOW_ANONYMOUS="true",
        REDISPATCH_INGEST_MAX_BODY="2MiB",
        REDISPATCH_QUEUE_MAX_DEPTH="9",
        REDISPATCH_DISPATCHER_DRAIN_TIMEOUT="3",
    )
    assert (settings.redis.url, settings.redis.namespace) == ("redis://other:1/2", "a")
    assert settings.ingest.listen == "0.0.0.0:80"
    assert settings.ingest.max_body == 2 * 1024**2
    assert settings.queue.max_depth == 9
    assert settings.dispatcher.drain_timeout == 3.0


def test_a_path_of_objects_is_relative_to_the_file(loaded: Load, tmp_path: Path) -> None:
    assert loaded("queue: {}").objects.url == f"{tmp_path}/data/objects"
    assert loaded("objects: {url: large}").objects.url == f"{tmp_path}/large"
    assert loaded("queue: {}", REDISPATCH_OBJECTS_URL="/large").objects.url == "/large"
    assert loaded("objects: {url: 'file:///a%20b'}").objects.url == "/a b"
    assert loaded("objects: {url: 's3://bucket/a'}").objects.url == "s3://bucket/a"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "expected a path or a URL"),
        (
            "http://h/bucket",
            "expected a path, or a URL that begins with file://, s3://, gs://, az://, memory://",
        ),
        ("s3://", "expected the bucket's name behind s3://"),
        ("s3://key:hunter2@bucket", "without credentials and options: those come from the environment"),
        ("az://bucket?sig=hunter2", "without credentials and options: those come from the environment"),
        ("file://relative/path", "expected an absolute path behind file://, or a path alone"),
    ],
)
def test_places_of_objects_that_are_none(faults: Faults, url: str, told: str) -> None:
    (line,) = faults(f"objects: {{url: '{url}'}}")
    assert line.startswith("r.yaml:1 objects.url: ")
    assert line.endswith(told)
    assert "hunter2" not in line


def test_an_override_is_taken_as_it_is(loaded: Load) -> None:
    assert loaded("queue: {}", REDISPATCH_REDIS_URL="redis://:${X@h").redis.url == "redis://:${X@h"


def test_faults_of_overrides_name_the_variable(faults: Faults) -> None:
    assert set(
        faults(
            "queue: {max_depth: 5}",
            REDISPATCH_QUEUE_MAX_DEPTH="many",
            REDISPATCH_INGEST_LISTN="x",
            REDISPATCH_INGEST_LISTEN="8080",
            REDISPATCH_READINGS_ZZZ="x",
            REDISPATCH_DESTINATIONS_URL="x",
            REDISPATCH_OBJECTS_URL="ftp://x",
        )
    ) == {
        "REDISPATCH_DESTINATIONS_URL: destinations can't be set by variables, since it is a list; "
        "use ${NAME} in the file",
        "REDISPATCH_INGEST_LISTN: is no setting; did you mean REDISPATCH_INGEST_LISTEN?",
        "REDISPATCH_READINGS_ZZZ: is no setting; readings has keep",
        "REDISPATCH_QUEUE_MAX_DEPTH: expected a whole number, got 'many'",
        "REDISPATCH_OBJECTS_URL: expected a path, or a URL that begins with file://, s3://, gs://, az://, memory://",
        "REDISPATCH_INGEST_LISTEN: expected address:port such as 127.0.0.1:8080 or [::1]:8080",
    }


def test_other_variables_are_left_alone(loaded: Load) -> None:
    assert loaded(
        "queue: {}",
        REDISPATCH_CONFIG="x",
        REDISPATCH_LOG="debug",
        REDISPATCH_INGEST="x",
        REDISPATCH_AGENT_URL="x",
        INGEST_LISTEN="x",
    ) == loaded("queue: {}")


def test_what_kubernetes_sets_for_services_is_left_alone(loaded: Load) -> None:
    links = {
        "REDISPATCH_INGEST_SERVICE_HOST": "10.0.0.1",
        "REDISPATCH_INGEST_SERVICE_PORT": "80",
        "REDISPATCH_INGEST_SERVICE_PORT_HTTP": "80",
        "REDISPATCH_INGEST_PORT": "tcp://10.0.0.1:80",
        "REDISPATCH_INGEST_PORT_80_TCP": "tcp://10.0.0.1:80",
        "REDISPATCH_INGEST_PORT_80_TCP_ADDR": "10.0.0.1",
        "REDISPATCH_REDIS_PORT_6379_TCP_PROTO": "tcp",
    }
    assert loaded("queue: {}", **links) == loaded("queue: {}")


def test_a_port_of_ones_own_is_not(faults: Faults) -> None:
    (line,) = faults("queue: {}", REDISPATCH_INGEST_PORT="9000")
    assert line.startswith("REDISPATCH_INGEST_PORT: is no setting")
