"""What fields say of each other, what is refused as not available yet, and `redispatch check`."""

from __future__ import annotations

import hashlib
import io
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from common.config import ConfigError, load
from dispatcher.destinations import kinds
from ops.check import check, examine

WEBHOOK = 'destinations: [{name: a, type: webhook, url: "http://h/", %s}]'
RULE = "rules: [{name: a, metric: m, %s}]"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "r.yaml"


def faults(config: Path, text: str) -> list[str]:
    """Each fault as `path: message`."""
    config.write_text(dedent(text), encoding="utf-8")
    try:
        load(str(config), {}, kinds)
    except ConfigError as error:
        return [f"{fault.place.partition(' ')[2]}: {fault.message}" for fault in error.faults]
    return []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("redis: {url: 'http://h'}", "redis.url: expected redis://, rediss:// or unix://"),
        ("redis: {url: 'h:6379'}", "redis.url: expected redis://"),
        ("redis: {url: ''}", "redis.url: expected redis://"),
        ("redis: {url: 'redis://'}", "redis.url: expected host, port and database"),
        ("redis: {url: 'redis://h/first'}", "redis.url: expected host, port and database"),
        ("redis: {url: 'redis://h:port'}", "redis.url: can't be read as a URL"),
        ("redis: {url: 'redis+sentinel://h'}", "redis.url: expected an address such as redis+sentinel://"),
        ("redis: {url: 'redis://[h'}", "redis.url: can't be read as a URL"),
        ("redis: {url: 'unix://'}", "redis.url: expected the path of a socket"),
        ("ingest: {listen: '8080'}", "ingest.listen: expected address:port"),
        ("dispatcher: {listen: 'h:99999'}", "dispatcher.listen: expected address:port"),
        ("console: {listen: ''}", "console.listen: expected address:port"),
        (
            "ingest: {max_alert: 2MiB, max_body: 1MiB}",
            "ingest.max_alert: is larger than ingest.max_body (1MiB)",
        ),
        ("ingest: {max_alert: 0}", "ingest.max_alert: expected at least 1 byte"),
        ("ingest: {durability_timeout: 0}", "ingest.durability_timeout: expected at least 1ms"),
        ("redis: {timeout: 0s}", "redis.timeout: expected at least 1ms"),
        ("dispatcher: {visibility_timeout: 0}", "dispatcher.visibility_timeout: expected at least 1ms"),
        ("dedupe: {window: 0}", "dedupe.window: expected at least 1ms"),
        ("dedupe: {repeat_interval: 2d}", "dedupe.repeat_interval: is longer than dedupe.remember (1d)"),
        ("dedupe: {window: 2d}", "dedupe.window: is longer than dedupe.remember (1d)"),
        (WEBHOOK % "timeout: 0", "destinations[0].timeout: expected at least 1ms"),
        (WEBHOOK % "retry: {base: 0}", "destinations[0].retry.base: expected at least 1ms"),
        (WEBHOOK % "retry_after_cap: 10ms", "destinations[0].retry_after_cap: expected at least 1s"),
        (WEBHOOK % "retry: {cap: 1s}", "destinations[0].retry: base (5s) is longer than cap (1s)"),
        (WEBHOOK % "url: x", "destinations[0].url: is there twice"),
        (WEBHOOK % "secrets: [whsec_]", "destinations[0].secrets[0]: nothing follows whsec_"),
        (
            WEBHOOK % "secrets: [a, whsec_a=b]",
            "destinations[0].secrets[1]: what follows whsec_ is not base64",
        ),
        (WEBHOOK % "secrets: [whsec_é]", "destinations[0].secrets[0]: what follows whsec_ is not base64"),
        (WEBHOOK % "headers: {'a b': c}", "destinations[0].headers.a b: is no name of a header"),
        (WEBHOOK % "headers: {'': c}", "destinations[0].headers.: is no name of a header"),
        (WEBHOOK % 'headers: {"a\\r\\nb": c}', r"destinations[0].headers.'a\r\nb': is no name of a header"),
        (WEBHOOK % 'headers: {A: "b\\r\\nc"}', "destinations[0].headers.A: holds a line break"),
        (WEBHOOK % "headers: {Webhook-ID: c}", "destinations[0].headers.Webhook-ID: is set by redispatch"),
        (
            WEBHOOK.replace("http://h/", "http://me:word@h/") % "headers: {AUTHORIZATION: c}",
            "destinations[0].headers.AUTHORIZATION: the url has a user name or password as well",
        ),
        ("destinations: [{name: a, type: stdout, url: x}]", "destinations[0].url: is unknown"),
        (
            "destinations: [{name: a, type: stdout, batch: {}}]",
            "destinations[0].batch: stdout takes one alert at a time",
        ),
        (WEBHOOK % "breaker: {open: 0}", "destinations[0].breaker.open: expected at least 1ms"),
        (
            WEBHOOK % "batch: {wait: 1h}, retry: {preset: page}",
            "destinations[0].batch.wait: is not shorter than retry.max_age (1h)",
        ),
        ("destinations: [{name: readings, type: stdout}]", "destinations[0].name: readings is reserved"),
        ("routes: [{to: [nobody]}]", "routes[0].to[0]: no destination is called nobody"),
        (RULE % "when: '=> 5'", "rules[0].when: expected one of >= > <= < == !="),
        (RULE % "when: '> nan'", "rules[0].when: expected one of"),
        (RULE % "when: '> 5', clear: '< x'", "rules[0].clear: expected one of"),
        (
            RULE % "when: '> 5', clear: '> 4'",
            "rules[0].clear: a value could fulfil both clear and when (> 5)",
        ),
    ],
)
def test_what_does_not_fit_together(config: Path, text: str, fault: str) -> None:
    (line,) = faults(config, text)
    assert line.startswith(fault)


@pytest.mark.parametrize(
    "url", ["ftp://h/", "http://", "http:h", "h", "//h/", "http://h:0/", "http://h:x/", "http://[h/"]
)
def test_a_webhook_wants_a_url_it_can_post_to(config: Path, url: str) -> None:
    (line,) = faults(config, f"destinations: [{{name: a, type: webhook, url: '{url}'}}]")
    assert line.startswith("destinations[0].url: ")
    assert url not in line.removeprefix("destinations[0].url: expected http://host/... or https://host/...")


def test_names_are_given_once(config: Path) -> None:
    text = """
        rules:
          - {name: a, metric: m, when: "> 1"}
          - {name: a, metric: m, when: "> 2"}
        destinations:
          - {name: a, type: stdout}
          - {name: b, type: stdout}
          - {name: a, type: discard}
    """
    assert faults(config, text) == [
        "rules[1].name: a is the name of rules[0], too",
        "destinations[2].name: a is the name of destinations[0], too",
    ]


def test_a_route_to_a_name_that_is_nearly_right(config: Path) -> None:
    text = "destinations: [{name: pager, type: stdout}]\nroutes: [{to: [pagr]}]"
    assert faults(config, text) == ["routes[0].to[0]: no destination is called pagr; did you mean pager?"]


@pytest.mark.parametrize(
    "text",
    [
        "ingest: {listen: '0.0.0.0:80'}",  # a dispatcher does not care, and ingest asks for itself
        "ingest: {listen: '[::1]:80'}",
        "dispatcher: {listen: '0.0.0.0:8081'}",
        "ingest: {durability: replicated, replicas: 2}",
        "ingest: {durability: fsynced}",
        "objects: {url: 's3://bucket/prefix'}",
        "objects: {url: 'memory://'}",
        "objects: {url: 'file:///var/lib/redispatch'}",
        "redis: {url: 'rediss://u:p@h:1/15'}",
        "redis: {url: 'unix:///run/redis.sock?db=1'}",
        "redis: {url: 'redis://[::1]:6379'}",
        "redis: {url: 'redis+sentinel://h1:26379,h2:26379/master/0'}",
        "redis: {url: 'redis+cluster://h1:7000,h2:7000'}",
        WEBHOOK % 'secrets: [whsec_c2VjcmV0, any text], headers: {A: "b\\tc"}',
        RULE % "when: '>= 100', clear: '< 90', summary: '{host} { {value}'",
    ],
)
def test_what_fits(config: Path, text: str) -> None:
    assert faults(config, text) == []


HASH, NOTHING = (hashlib.sha256(text).hexdigest() for text in (b"t", b""))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"tokens: [{{name: a, sha256: '{HASH}', rate: 5/s}}]", []),
        (f"tokens: [{{name: a, sha256: '{HASH.upper()}'}}]\ningest: {{listen: '0.0.0.0:80'}}", []),
        ("tokens: [{name: a, sha256: 'the token itself'}]", ["tokens[0].sha256: expected 64 hexadecimal"]),
        (f"tokens: [{{name: a, sha256: '{HASH[1:]}'}}]", ["tokens[0].sha256: expected 64 hexadecimal"]),
        (f"tokens: [{{name: a, sha256: '{NOTHING}'}}]", ["tokens[0].sha256: is the hash of nothing"]),
        (
            f"tokens: [{{name: a, sha256: '{HASH}'}}, {{name: a, sha256: '{HASH.upper()}'}}]",
            ["tokens[1].name: a is the name of tokens[0], too", "tokens[1].sha256: is the token of a, too"],
        ),
        (f"tokens: [{{name: anonymous, sha256: '{HASH}'}}]", ["tokens[0].name: anonymous is reserved"]),
        (
            f"tokens: [{{name: a, sha256: '{HASH}'}}]\ningest: {{allow_anonymous: true}}",
            ["ingest.allow_anonymous: contradicts tokens"],
        ),
        (
            f"console: {{tokens: [{{name: a, sha256: '{HASH}'}}, {{name: b, sha256: '{HASH}'}}]}}",
            ["console.tokens[1].sha256: is the token of a, too"],
        ),
        (
            f"console: {{tokens: [{{name: a, sha256: '{HASH}'}}], allow_anonymous: true}}",
            ["console.allow_anonymous: contradicts tokens"],
        ),
        ("console: {hosts: ['https://a.example']}", ["console.hosts[0]: expected a name"]),
    ],
)
def test_tokens(config: Path, text: str, expected: list[str]) -> None:
    told = sorted(faults(config, text))
    assert len(told) == len(expected)
    assert all(line.startswith(start) for line, start in zip(told, expected, strict=True)), told
    assert not any("the token itself" in line or HASH[1:] in line for line in told)


def test_paths_of_certificates_are_relative_to_the_file(config: Path) -> None:
    """And nobody but ingest and `check` reads them: the dispatcher has no right to."""
    config.write_text("ingest: {tls: {cert: a.pem, key: /etc/b.pem}}")
    tls = load(str(config), {}).ingest.tls
    assert (tls.cert, tls.key, tls.client_ca) == (str(config.parent / "a.pem"), "/etc/b.pem", None)


@given(st.text() | st.binary())
@example("redis: {url: \ud800}".encode("utf-8", "surrogatepass"))
@example("&a [*a]")
@example("a: !!python/object:os.system {}")
@example("destinations: [{name: a, type: webhook, url: 'http://\\u212a/'}]")
def test_any_file_gives_settings_or_faults(
    tmp_path_factory: pytest.TempPathFactory, content: str | bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    with suppress(ConfigError):  # anything else is a traceback for a person's mistake
        load(str(file), {}, kinds)


names = st.sampled_from(
    ["redis", "ingest", "destinations", "rules", "routes", "retry", "name", "type", "url"]
)
names |= st.sampled_from(["to", "match", "labels", "headers", "secrets", "when", "clear", "batch", "x", "<<"])
scalars: st.SearchStrategy[object] = st.one_of(
    st.sampled_from(["webhook", "stdout", "> 5", "1/s", "http://h/", "${A}", "file:x", "a"]),
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(),
)
values: st.SearchStrategy[object] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4)
)


@given(st.dictionaries(names, values, max_size=4))
def test_any_shape_gives_settings_or_faults(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, object]
) -> None:
    file = tmp_path_factory.getbasetemp() / "shape.yaml"
    file.write_text(yaml.safe_dump(tree))
    with suppress(ConfigError):
        load(str(file), {"A": "b"}, kinds)


# redispatch check


def run(config: Path, text: str) -> tuple[int, list[str]]:
    config.write_text(dedent(text), encoding="utf-8")
    out = io.StringIO()
    code = check(str(config), out)
    return code, out.getvalue().replace(f"{config.parent}/", "").splitlines()


QUIET = """
destinations:
  - {name: a, type: stdout}
routes:
  - {to: [a]}
"""


def test_check_of_a_good_file(config: Path) -> None:
    assert run(config, QUIET) == (
        0,
        [
            "memory: one alert per second to every destination takes about 90MiB to remember; "
            "full queues of alerts of 1KiB take 123MiB more",
            "r.yaml is valid: 1 destination, 1 route, 0 rules, 0 warnings",
        ],
    )


@pytest.mark.parametrize(
    ("maxmemory", "end"),
    [
        (0, "; the server has no maxmemory"),
        (1024**3, "more; maxmemory is 1GiB"),
        (10 * 1024**2, "; maxmemory is 10MiB: too little, ingest will refuse alerts before a queue is full"),
    ],
)
def test_check_knows_the_servers_limit(config: Path, maxmemory: int, end: str) -> None:
    config.write_text(QUIET)
    out = io.StringIO()
    assert check(str(config), out, lambda settings: maxmemory) == 0
    assert out.getvalue().splitlines()[0].endswith(end)


def test_check_prints_every_fault(config: Path) -> None:
    code, lines = run(config, "redis: {url: x}\nqueue: {max_depth: 0}\n")
    assert code == 1
    assert lines == [
        "fault: r.yaml:1 redis.url: expected redis://, rediss:// or unix://, "
        "redis+sentinel:// or redis+cluster:// (rediss+... for TLS)",
        "fault: r.yaml:2 queue.max_depth: expected a whole number of 1 or more, got '0'",
        "2 faults, nothing would start",
    ]


def test_check_of_routes_that_leave_alerts_without_a_destination(config: Path) -> None:
    routes = "destinations: [{name: a, type: stdout}]\nroutes: [{match: {host: b}, to: [a]}]"
    assert run(config, routes) == (
        1,
        [
            "fault: r.yaml:2 routes: an alert that fits none of them is refused; end with {to: [...]}",
            "1 fault, alerts would be refused",
        ],
    )
    assert run(config, "destinations: [{name: a, type: stdout}]")[0] == 0


def test_check_of_what_ingest_alone_would_not_start_with(config: Path) -> None:
    code, lines = run(config, QUIET + "ingest: {listen: '0.0.0.0:80', tls: {cert: none.pem, key: none.pem}}")
    assert code == 1
    assert lines[0].startswith("fault: r.yaml:6 ingest.listen: anybody who reaches this address may send")
    assert lines[1].startswith("fault: r.yaml:6 ingest.tls.cert: ")
    assert lines[2:] == ["2 faults, ingest would not start"]
    assert examine(str(config), ingest=False).faults == []


def test_check_of_a_missing_file(config: Path) -> None:
    out = io.StringIO()
    assert check(str(config), out) == 1
    assert "No such file" in out.getvalue()


def webhook(more: str) -> str:
    url = "" if "url:" in more else 'url: "http://h.example/", '
    secrets = "" if "secrets:" in more else f"secrets: [whsec_{'c2VjcmV0' * 4}], "
    return f"destinations: [{{name: a, type: webhook, {url}{secrets}{more}}}]\nroutes: [{{to: [a]}}]\n"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            f"{QUIET}  - {{match: {{host: b}}, to: [a]}}",
            "r.yaml:6 routes[1]: is never reached: routes[0] takes",
        ),
        (
            "destinations: [{name: a, type: stdout}, {name: b, type: stdout}]\nroutes: [{to: [a]}]",
            "r.yaml:1 destinations[1]: no route leads to b",
        ),
        (
            webhook("timeout: 30s"),
            "r.yaml:1 destinations[0].timeout: 30s is longer than dispatcher.drain_timeout",
        ),
        (
            f"dispatcher: {{visibility_timeout: 5s}}\n{webhook('')}",
            "r.yaml:2 destinations[0].timeout: 10s is longer than dispatcher.visibility_timeout (5s)",
        ),
        (
            webhook("retry: {max_age: 1h}"),
            "r.yaml:1 destinations[0].retry: max_age (1h) ends it after about 4 of 10 attempts, "
            "the last of which is due 38h after the first on average",
        ),
        (
            webhook("retry: {base: 10ms, cap: 10ms, max_age: 20ms}"),
            "r.yaml:1 destinations[0].retry: max_age (20ms) ends it after about 5 of 10 attempts, "
            "the last of which is due 45ms",
        ),
        (webhook("secrets: []"), "r.yaml:1 destinations[0].secrets: none: its requests are not signed"),
        (webhook("secrets: [whsec_c2VjcmV0]"), "r.yaml:1 destinations[0].secrets[0]: is short"),
        (webhook('url: "http://127.0.0.1/"'), "r.yaml:1 destinations[0].url: is a loopback address"),
        (webhook('url: "http://localhost/"'), "r.yaml:1 destinations[0].url: is a loopback address"),
        (webhook('url: "http://[fd00::1]/"'), "r.yaml:1 destinations[0].url: is a private address"),
        (
            f"dispatcher: {{listen: '127.0.0.1:8080'}}\n{QUIET}",
            "r.yaml:1 dispatcher.listen: ingest listens on 127.0.0.1:8080, too",
        ),
        (
            f"console: {{listen: '127.0.0.1:8080'}}\n{QUIET}",
            "r.yaml:1 console.listen: ingest listens on 127.0.0.1:8080, too",
        ),
        (
            f"dispatcher: {{listen: ':8090'}}\n{QUIET}",
            "r.yaml console.listen: dispatcher listens on :8090, too",
        ),
        (
            f"console: {{listen: ':8090'}}\n{QUIET}",
            "r.yaml:1 console.listen: the console would not start: anybody who reaches this address",
        ),
        (
            f"console: {{listen: ':8090', allow_anonymous: true}}\n{QUIET}",
            "r.yaml:1 console.hosts: the console would not start: without tokens",
        ),
    ],
)
def test_check_warns(config: Path, text: str, warning: str) -> None:
    code, lines = run(config, text)
    warned = [line for line in lines if line.startswith("warning: ")]
    assert code == 0
    assert len(warned) == 1, warned
    assert warned[0].startswith(f"warning: {warning}")
    assert lines[-1].endswith(", 1 warning")


def test_check_of_a_console_beside_which_the_image_says_where_it_listens(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image does so for every process, whether there is a console or not."""
    monkeypatch.setenv("REDISPATCH_CONSOLE_LISTEN", "0.0.0.0:8090")
    assert run(config, QUIET)[1][-1].endswith(", 0 warnings")
    tokens = f"console: {{tokens: [{{name: a, sha256: '{HASH}'}}]}}\n"
    assert run(config, tokens + QUIET)[1][-1].endswith(", 0 warnings")
    told = run(config, f"console: {{allow_anonymous: true}}\n{QUIET}")[1]
    assert told[0].startswith("warning: r.yaml:1 console.hosts: the console would not start: ")


@pytest.mark.parametrize(
    "text",
    [
        webhook('url: "http://127.0.0.1/", allow_private: true'),
        webhook("retry: {preset: page}"),
        QUIET.replace("{to: [a]}", "{to: [a], continue: true}") + "  - {match: {host: b}, to: [a]}",
        f"ingest: {{listen: '127.0.0.1:0'}}\ndispatcher: {{listen: '127.0.0.1:0'}}\n{QUIET}",
    ],
)
def test_check_does_not_warn(config: Path, text: str) -> None:
    code, lines = run(config, text)
    assert (code, lines[:-2]) == (0, [])
