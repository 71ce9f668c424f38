"""The console's parts without a server: who comes in, what is read from forms, lines, words, colours."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions as errors

from common.http import Problem
from common.settings import Console, Settings
from common.snapshot import Ledger, Snapshot
from common.units import Duration
from ops import move
from ops.console import form, jobs, letter, search
from ops.console.board import board
from ops.console.door import COOKIE, SESSIONS, TRIES, TRIES_OF_ALL, Door, check_form
from ops.console.listen import too_open
from ops.console.track import POINTS, STEP, WIDTH, Track, line
from ops.letters import Letter
from ops.tables import Seen
from tests.support.console import visitor

STATIC = Path(__file__).parents[2] / "ops" / "console" / "static"
TEMPLATES = sorted((STATIC.parent / "templates").glob("*.html"))
NOW = 1_772_439_300_000


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def request(
    host: str = "127.0.0.1:8090",
    cookie: str = "",
    secure: bool = False,
    remote: str = "10.0.0.1",
    **headers: str,
) -> Any:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    cookies = {f"__Host-{COOKIE}" if secure else COOKIE: cookie} if cookie else {}
    return SimpleNamespace(host=host, headers=told, cookies=cookies, secure=secure, remote=remote)


def refused(status: int) -> Any:
    return pytest.raises(Problem, check=lambda problem: problem.status == status)


@pytest.mark.parametrize(
    ("console", "why"),
    [
        (Console(), None),
        (Console(listen=":8090"), "listen"),
        (Console(listen=":8090", hosts=["alerts.example"]), "listen"),
        (Console(listen="10.0.0.1:8090", allow_anonymous=True), "hosts"),
        (Console(listen="10.0.0.1:8090", allow_anonymous=True, hosts=["alerts.example"]), None),
        (Console(listen=":8090", tokens=[visitor("alice", "t")]), None),
    ],
)
def test_where_it_may_listen(console: Console, why: str | None) -> None:
    told = too_open(console)
    assert (told and told[0]) == why


def test_without_tokens_everybody_is_in() -> None:
    guest = Door(Console()).guest(request())
    assert guest is not None
    assert (guest.name, guest.read_only) == ("anonymous", False)


@pytest.mark.parametrize("host", ["localhost:8090", "127.0.0.1", "[::1]:8090", "LOCALHOST.", "127.9.9.9:1"])
def test_names_of_this_machine_lead_here(host: str) -> None:
    Door(Console()).check_host(request(host))


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8090", "", "localhost:x", "10.0.0.1"]
)
def test_other_names_do_not(host: str) -> None:
    with refused(421):
        Door(Console()).guest(request(host))


def test_names_that_are_given_and_no_others() -> None:
    door = Door(Console(listen=":8090", tokens=[visitor("alice", "t")], hosts=["alerts.example"]))
    door.check_host(request("Alerts.example:443"))
    with refused(421):
        door.check_host(request("other.example"))
    Door(Console(listen=":8090", tokens=[visitor("alice", "t")])).check_host(request("other.example"))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8091"},
        {"Origin": "http://127.0.0.1:8090", "X_Forwarded_Proto": "https"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "http://[", "Sec_Fetch_Site": "same-origin"},
    ],
)
def test_forms_of_other_sites_are_refused(headers: dict[str, Any]) -> None:
    with refused(403):
        Door(Console()).check_origin(request(**headers))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://127.0.0.1:8090"},
        {"Origin": "https://127.0.0.1:8090", "X_Forwarded_Proto": "https"},
    ],
)
def test_our_own_are_not(headers: dict[str, Any]) -> None:
    Door(Console()).check_origin(request(**headers))


def test_a_form_of_somebody_else() -> None:
    guest = Door(Console()).guest(request())
    assert guest is not None
    check_form(guest, guest.csrf)
    for wrong in ("", "x", "\udc80", guest.csrf[:-1]):
        with refused(403):
            check_form(guest, wrong)


def test_a_session_and_its_ends() -> None:
    clock, console = Clock(), Console(tokens=[visitor("alice", "t"), visitor("wall", "w", read_only=True)])
    door = Door(console, clock)
    assert door.guest(request()) is None
    value, name = door.sign_in(request(), " t\n")
    assert name == "alice"
    guest = door.guest(request(cookie=value))
    assert guest is not None
    assert not guest.read_only
    assert (
        door.guest(request(cookie=value, secure=True)) is not None
    )  # another cookie's name, the same session
    assert door.guest(request(cookie=value[:-1])) is None
    other, _ = door.sign_in(request(), "w")
    seen = door.guest(request(cookie=other))
    assert seen is not None
    assert seen.read_only
    assert seen.csrf != guest.csrf
    door.sign_out(guest)
    assert door.guest(request(cookie=value)) is None
    clock.now += console.session
    assert door.guest(request(cookie=other)) is None


def test_a_token_that_left_the_configuration_takes_its_sessions_along() -> None:
    door = Door(Console(tokens=[visitor("alice", "t"), visitor("bob", "b")]))
    value, _ = door.sign_in(request(), "t")
    door.configure(Console(tokens=[visitor("alice", "new"), visitor("bob", "b")]))
    assert door.guest(request(cookie=value)) is None


def test_read_only_for_all_from_one_moment_to_the_next() -> None:
    door = Door(Console(tokens=[visitor("alice", "t")]))
    value, _ = door.sign_in(request(), "t")
    door.configure(Console(tokens=[visitor("alice", "t")], read_only=True))
    guest = door.guest(request(cookie=value))
    assert guest is not None
    assert guest.read_only


def test_wrong_tokens_are_bounded() -> None:
    clock = Clock()
    door = Door(Console(tokens=[visitor("alice", "t")]), clock)
    for _ in range(TRIES):
        with refused(401):
            door.sign_in(request(), "wrong")
    assert door.pause(request()) > 0
    with refused(429):
        door.sign_in(request(), "wrong")
    assert door.sign_in(request(), "t")  # who has it gets in
    clock.now += 61
    assert door.pause(request()) == 0
    with refused(401):
        door.sign_in(request(), "wrong")


def test_wrong_tokens_from_many_addresses_lock_nobody_out() -> None:
    door = Door(Console(tokens=[visitor("alice", "t")]))
    for n in range(TRIES_OF_ALL):
        with refused(401):
            door.sign_in(request(remote=f"10.0.1.{n}"), "wrong")
    with refused(429):
        door.sign_in(request(remote="10.0.2.1"), "wrong")
    assert door.pause(request()) > 0
    assert door.sign_in(request(), "t")


def test_sessions_are_bounded() -> None:
    door = Door(Console(tokens=[visitor("alice", "t")], session=Duration(60)))
    first, _ = door.sign_in(request(), "t")
    second, _ = door.sign_in(request(), "t")
    for _ in range(SESSIONS - 1):
        assert door.guest(request(cookie=second)) is not None  # it is in use
        door.sign_in(request(), "t")
    assert door.guest(request(cookie=first)) is None
    assert door.guest(request(cookie=second)) is not None


def test_fields() -> None:
    fields = form.parsed("a=1&b=+x+&a=2&empty=&c=%00%ff")
    assert (fields["a"], form.one(fields, "b"), form.one(fields, "empty")) == (["1", "2"], "x", "")
    assert fields["c"] == ["\0\ufffd"]
    for wrong in ("&".join(["a=1"] * 1001), "a=" + "x" * 5000):
        with refused(400):
            form.parsed(wrong)


def test_a_search_from_a_form() -> None:
    told = "destination=pager&reason=attempts&key=web-*&text=Disk&since=2h&until=1m&order=oldest"
    wanted = search.search(form.parsed(told), NOW)
    assert (wanted.since, wanted.until) == (NOW - 7_200_000, NOW - 60_000)
    assert search.search(form.parsed(wanted.address().partition("?")[2]), NOW).fields == wanted.fields
    for wrong in ("reason=boredom", "since=yesterday", "until=2026-01-01"):
        with refused(400):
            search.search(form.parsed(wrong), NOW)
    for wrong in ("x", "1-2", "1-2/" + "x" * 300, f"{'9' * 30}-1/pager"):
        with refused(400):
            search.place(wrong)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("disk", True),
        ("DISK", True),
        ("503", True),
        ("pager", False),
        ("größe", True),
        ("GRÖSSE", True),
        ("ß", True),
    ],
)
def test_a_text_is_found(text: str, found: bool) -> None:
    one = Letter(
        "chat", "1-0", {b"key": b"web:Disk", b"error": b"HTTP 503", b"alert": '{"s":"Größe"}'.encode()}
    )
    assert search.Search(text=text).admits(one) is found


def test_what_was_ticked() -> None:
    assert letter.picked(["a/1-0", "b/2-1", "a/1-0", "a/3-0"]) == {"a": ("1-0", "3-0"), "b": ("2-1",)}
    for wrong in ("a", "a/1", "1-0", "a/x-0", "a/1-0-0", "a/" + "9" * 40 + "-1"):
        with pytest.raises(ValueError, match=re.escape(wrong)):
            letter.picked([wrong])


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=POINTS))
def test_a_line_stays_inside(values: list[float]) -> None:
    points = [tuple(map(float, point.split(","))) for point in line(values).split()]
    assert len(points) == len(values)
    assert all(-0.1 <= x <= WIDTH + 0.1 and 2 <= y <= 30 for x, y in points)
    assert points[-1][0] == pytest.approx(WIDTH, abs=0.1)


def seen(second: int = 0, delivered: int = 0, **fields: Any) -> Snapshot:
    given: dict[str, Any] = {
        "destination": "pager",
        "now": NOW + second * 1000,
        "waiting": 0,
        "retrying": 0,
        "dead_letters": 0,
        "in_flight": 0,
        "consumers": 1,
        "groups": 1,
        "oldest_at": None,
        "next_due": None,
        "gate": {},
        "ledger": Ledger(accepted=delivered, delivered=delivered),
    }
    return Snapshot(**given | fields)


def test_a_track_knows_rate_and_peak() -> None:
    track = Track()
    for second in range(STEP * POINTS * 2):
        track.add(seen(second, delivered=second * 3, waiting=7 if second == 400 else 1))
    assert track.rate == pytest.approx(3)
    assert track.most[0] == 7
    assert track.most[1] == pytest.approx(3)
    assert len(track.depths.split()) == POINTS


def test_a_server_that_went_back_in_time_is_no_rate() -> None:
    track = Track()
    track.add(seen(10, delivered=100))
    track.add(seen(5, delivered=20))
    track.add(seen(6, delivered=30))
    assert track.rate == 0.0 or track.rate > 0
    assert track.most[1] >= 0


def test_nothing_is_claimed_that_was_not_seen() -> None:
    def told(fault: str | None, *snapshots: Snapshot) -> tuple[str, str]:
        made = board([Seen(one, False) for one in snapshots], {}, fault, {})
        return made["all/ledger"], made["all/ledger_state"]

    assert told(None, seen(delivered=5)) == ("Nothing is lost: all 5 deliveries are accounted for.", "good")
    assert told(None, seen(delivered=5, waiting=2))[1] == "bad"
    assert told(None, seen(delivered=5, waiting=2))[0].startswith("2 unaccounted")
    assert told("away") == ("Nothing is known yet.", "unknown")
    assert told("away", seen(delivered=5))[0].startswith("When Redis last answered: ")
    assert told("away", seen(delivered=5))[1] == "unknown"


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_nothing_is_inline(template: Path) -> None:
    """What the policy would forbid, and what another site would serve."""
    text = template.read_text("utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|\|safe|https?://", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))


def test_every_field_has_its_label() -> None:
    for template in TEMPLATES:
        text = template.read_text("utf-8")
        for tag in re.findall(r"<(?:input|select)\b[^>]*>", text):
            if 'type="hidden"' in tag:
                continue
            name = re.search(r'\bid="([^"]+)"', tag)
            inside = re.search(rf"<label[^>]*>{re.escape(tag)}", text)
            assert inside or (name and f'for="{name[1]}"' in text), f"{template.name}: {tag}"


COLOURS = (STATIC / "console.css").read_text("utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part))
    for part in re.findall(r":root \{(.*?)\}", COLOURS, re.S)
)
TEXTS = [
    *[
        (text, ground)
        for text in ("ink", "dim", "accent", "warn", "bad", "good")
        for ground in ("ground", "card")
    ],
    *[(state, f"{state}-ground") for state in ("good", "warn", "bad", "info")],
    ("on-accent", "accent"),
]


def contrast(one: str, other: str) -> float:
    """WCAG 2."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_contrasts(scheme: dict[str, str]) -> None:
    assert scheme.keys() == LIGHT.keys()
    low = {pair: contrast(scheme[pair[0]], scheme[pair[1]]) for pair in TEXTS}
    assert {pair: ratio for pair, ratio in low.items() if ratio < 4.5} == {}
    assert min(contrast(scheme["field"], scheme[ground]) for ground in ("card", "ground")) >= 3


def test_a_row_shows_what_of_an_alert_is_text() -> None:
    stored = b'{"host":"h","name":7,"status":["x"],"severity":null,"summary":"s","more":{}}'
    told = letter.row(Letter("pager", "1-0", {b"alert": stored})).alert
    assert told == letter.Told(host="h", summary="s")
    for wrong in (b"[]", b"7", b"{", b"", b"\xff"):
        assert letter.row(Letter("pager", "1-0", {b"alert": wrong})).alert == letter.Told()


async def test_a_job_that_redis_broke_off_counts_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody else moved before that is not counted as done."""
    rounds = iter([(3, 2), (4, 1)])

    async def discard(run: move.Run, names: Any) -> list[move.Moved]:
        done, gone = next(rounds)
        run.told(done, gone)
        if done == 3:
            raise errors.ConnectionError("away")
        return [move.Moved("pager", done, gone)]

    monkeypatch.setattr(move, "discard", discard)
    monkeypatch.setattr(jobs, "PAUSE", 0.01)
    over = asyncio.Event()
    redis: Any = None
    all_jobs = jobs.Jobs(redis, lambda kind: None, lambda count: None if count else over.set())
    job = all_jobs.start(jobs.Task("discard", ("pager",), "alice", search.Search()), Settings())
    async with asyncio.timeout(20):
        await over.wait()
    assert (job.state, job.done) == ("done", 7)
    assert job.remarks == ["3 were moved by somebody else meanwhile"]
