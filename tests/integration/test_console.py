"""Every page and action of the console against a real server, as browsers and hostile people see them."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from html import unescape

import pytest
from redis.asyncio import Redis

from common import keys
from common.alert import Alert
from common.append import Store
from common.settings import Console, Destination, Queue
from common.wire import Wire
from ops.console import jobs as jobs_module
from ops.console import search
from ops.console.site import ACTIONS, PAGES
from tests.support.books import NAMESPACE, Book, link
from tests.support.console import Browser, Page, Served, console, visitor
from tests.support.fleet import eventually
from tests.support.servers import Server, one_kind
from tests.support.settings import build

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>\u202e\u2066gnp\0\x1b[31m\ufeff"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view ends for its number of letters, not since this machine had to wait."""
    monkeypatch.setattr(search, "SECONDS", 60)


@pytest.fixture
def pager(server: Server) -> Iterator[Book]:
    with link(server) as client:
        yield Book(client, "pager")


@pytest.fixture
async def served(server: Server) -> AsyncIterator[Served]:
    async with console(build(server.url, ["pager", "chat"])) as made:
        yield made


@pytest.fixture
async def browser(served: Served) -> AsyncIterator[Browser]:
    async with Browser(served.url) as made:
        yield made


@pytest.fixture
async def guarded(server: Server) -> AsyncIterator[tuple[Served, Browser]]:
    """With tokens: `secret` of alice, `look` of the screen on the wall."""
    tokens = [visitor("alice", "secret"), visitor("wall", "look", read_only=True)]
    async with (
        console(build(server.url, ["pager"], console=Console(tokens=tokens))) as made,
        Browser(made.url) as sent,
    ):
        yield made, sent


def audit(caplog: pytest.LogCaptureFixture, event: str = "console_action") -> list[dict[str, object]]:
    """The lines of that event, as fields."""
    return [record.__dict__["fields"] for record in caplog.records if record.message == event]


async def ended(served: Served) -> jobs_module.Job:
    """The one job, when it is over."""
    job = served.desk.jobs.all[-1]

    async def over() -> bool:
        return job.over

    await eventually(over, "the end of the job")
    return job


def ids(page: Page) -> list[str]:
    """What can be ticked."""
    return [unescape(value) for value in re.findall(r'name="letter" value="([^"]+)"', page.text)]


@one_kind
@pytest.mark.parametrize("path", [*PAGES, "/sign-in", "/nowhere", "/static/console.css"])
async def test_headers_of_every_answer(browser: Browser, path: str) -> None:
    page = await browser.get(path)
    assert page.status == (
        404 if path in ("/nowhere", "/destination", "/dead/letter", "/dead/alert") else 200
    )
    policy = page.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert {"frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} <= set(policy.split("; "))
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Referrer-Policy"] == "same-origin"
    assert ("immutable" if "static" in path else "no-store") in page.headers["Cache-Control"]


@one_kind
async def test_every_figure_of_a_page_is_on_the_board(served: Served, browser: Browser, pager: Book) -> None:
    """Else it would stay what it was when the page was loaded."""
    pager.wait(3)
    await served.look()
    for path in ("/", "/destination?name=pager", "/dead"):
        page = await browser.get(path)
        named = set(re.findall(r'data-live(?:-\w+)?="([^"]+)"', page.text))
        assert len(named) > 1
        assert named - served.desk.watch.board.keys() == set(), path


async def test_the_overview(served: Served, browser: Browser, pager: Book) -> None:
    assert "There is nothing to lose" not in (await browser.get("/")).words
    pager.wait(2)
    pager.die(3)
    pager.link.sadd(keys.destinations(NAMESPACE), "old")
    Book(pager.link, "old").die(1)
    await served.look()
    told = (await browser.get("/")).words
    assert "Nothing is lost: all 6 deliveries are accounted for." in told
    assert "old is not in the configuration" in told
    pager.link.hincrby(pager.at.ledger, "accepted", 4)
    await served.look()
    assert "4 unaccounted" in (await browser.get("/")).words
    page = await browser.get("/destination?name=pager")
    assert "4 deliveries missing" in page.words
    assert (await browser.get("/destination?name=nobody")).status == 404


@one_kind
async def test_nothing_yet_is_said_with_what_to_do(server: Server) -> None:
    async with console(build(server.url, [])) as made, Browser(made.url) as browser:
        assert "Add one to destinations in the configuration" in (await browser.get("/")).words
        assert "nothing was given up" in (await browser.get("/dead")).words
        assert "Send a test alert" in (await browser.get("/work")).words
        assert "There is none." in (await browser.get("/jobs")).words


@one_kind
async def test_hostile_texts_are_texts(served: Served, browser: Browser, pager: Book) -> None:
    alert = {
        "host": HOSTILE,
        "name": HOSTILE,
        "severity": HOSTILE,
        "summary": HOSTILE,
        "url": "javascript:alert(1)",
    }
    [one] = pager.die(key=HOSTILE, error=HOSTILE, reason="attempts", status=HOSTILE, alert=json.dumps(alert))
    pager.link.hset(pager.at.gate, mapping={"state": HOSTILE, "reason": HOSTILE, "until": HOSTILE})
    pager.link.xadd(pager.at.stream, {"key": HOSTILE, "alert": "{}"})
    pager.link.zadd(pager.at.retry, {HOSTILE: 1})
    pager.link.sadd(keys.destinations(NAMESPACE), HOSTILE)
    Book(pager.link, HOSTILE).die()
    await served.look()
    paths = ["/", "/dead", f"/dead/letter?destination=pager&id={one}", "/destination?name=pager", "/work"]
    for path in (
        *paths,
        "/dead?text=%3Cscript%3E%22'",
        "/way?key=%3Cscript%3E%22",
        "/dead?key=%22%3E%3Cscript%3E",
    ):
        page = await browser.get(path)
        assert page.status == 200, path
        assert "<script>alert" not in page.text
        assert "<img" not in page.text
        assert "javascript:" not in re.sub(r"<pre.*?</pre>|<dd.*?</dd>", "", page.text, flags=re.DOTALL)
        assert not set("\u202e\u2066\0\x1b\ufeff") & set(page.words), path
    page = await browser.get(f"/dead/letter?destination=pager&id={one}")
    assert "\\u202e" in page.text
    assert 'href="javascript' not in page.text


@one_kind
async def test_a_link_is_one_when_it_leads_to_a_page(browser: Browser, pager: Book) -> None:
    alert = {"host": "h", "name": "n", "url": "https://grafana.example/d?a=1&b=2"}
    [one] = pager.die(alert=json.dumps(alert))
    page = await browser.get(f"/dead/letter?destination=pager&id={one}")
    assert (
        '<a href="https://grafana.example/d?a=1&amp;b=2" rel="noopener noreferrer" target="_blank">'
        in page.text
    )


@one_kind
async def test_a_letter_of_a_mebibyte_and_one_of_rubbish(browser: Browser, pager: Book) -> None:
    large = json.dumps({"host": "h", "name": "n", "annotations": {"a": "x" * 2**20}})
    [first] = pager.die(alert=large)
    page = await browser.get(f"/dead/letter?destination=pager&id={first}")
    assert len(page.text) < 100_000
    assert "the beginning is shown" in page.words
    saved = await browser.get(f"/dead/alert?destination=pager&id={first}")
    assert saved.text == large
    assert saved.headers["Content-Disposition"].startswith("attachment")
    for rubbish in (b"\xff\xfe\0", b"[" * 20_000, b"", b"{", b"null"):
        [other] = pager.die(alert=rubbish)
        assert (await browser.get(f"/dead/letter?destination=pager&id={other}")).status == 200
    pager.link.xadd(pager.at.dead, {"x": "1"})
    assert (await browser.get("/dead")).status == 200
    assert (await browser.get("/dead/letter?destination=pager&id=1-1")).status == 404
    assert (await browser.get("/dead/letter?destination=pager&id=x")).status == 404


async def test_dead_letters_page_by_page(browser: Browser, pager: Book, server: Server) -> None:
    """Newest first or oldest first, over two destinations, none twice and none left out, equal ids too."""
    at = 1_764_438_120_042
    wanted = pager.die(70, at=at)
    wanted = [f"pager/{each}" for each in wanted]
    wanted += [f"chat/{each}" for each in Book(pager.link, "chat").die(60, at=at)]
    for order in ("", "oldest"):
        path, found = f"/dead?order={order}", []
        for _ in range(5):
            page = await browser.get(path)
            found += ids(page)
            onward = re.search(r'rel="next" href="([^"]+)"', page.text)
            if onward is None:
                break
            path = unescape(onward[1])
        assert sorted(found) == sorted(wanted)
        numbers = [int(each.rpartition("-")[2]) for each in found]
        assert numbers == sorted(numbers, reverse=not order)


@one_kind
async def test_dead_letters_are_found(browser: Browser, pager: Book) -> None:
    now = int(time.time() * 1000)
    pager.die(at=now - 7_200_000, key="old")
    pager.die(3, at=now - 1_200_000, reason="rejected", key="web-1:disk", error="HTTP 422 nope")
    pager.die(2, at=now - 1000, key="web-2:cpu", alert='{"host":"h","name":"n","summary":"Größe [x]"}')
    for query, number in {
        "": 6,
        "reason=rejected": 3,
        "key=web-*": 5,
        "key=web-%3F:cpu": 2,
        "text=NOPE": 3,
        "text=gr%C3%B6%C3%9Fe+%5Bx": 2,
        "since=1h": 5,
        "until=1h": 1,
        "since=1h&until=10m": 3,
        "reason=rejected&text=cpu": 0,
        "destination=chat": 0,
        "destination=pager&since=2000-01-01T00:00:00Z": 6,
    }.items():
        page = await browser.get(f"/dead?{query}")
        assert len(ids(page)) == number, query
    assert "No dead letter matches" in (await browser.get("/dead?text=nothing")).words
    for query, status in {
        "since=yesterday": 400,
        "reason=x": 400,
        "from=x": 400,
        "destination=x": 404,
    }.items():
        page = await browser.get(f"/dead?{query}")
        assert page.status == status
        assert query.partition("=")[0] in page.words


@one_kind
async def test_a_view_looks_at_so_many_and_says_so(browser: Browser, pager: Book) -> None:
    pager.die(21_000)
    began = time.monotonic()
    page = await browser.get("/dead?text=nothing-like-it")
    assert time.monotonic() - began < 20  # that it ends; how long it takes is measured elsewhere
    assert "there are more to look at" in page.words
    path, views = "/dead?text=nothing-like-it", 0
    while (onward := re.search(r'rel="next" href="([^"]+)"', page.text)) is not None:
        path, views = unescape(onward[1]), views + 1
        page = await browser.get(path)
        assert views < 50
    assert "That was the last one" in page.words


@pytest.mark.parametrize("verb", ["replay", "discard"])
async def test_one_and_many(
    served: Served, browser: Browser, pager: Book, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pager.die(4)
    chat = Book(pager.link, "chat")
    chat.die(2)
    chosen = [*(f"pager/{each}" for each in pager.dead()[:3]), f"chat/{chat.dead()[0]}"]
    sent = [("letter", each) for each in chosen]
    page = await browser.send("/dead", "/actions/picked", *sent, do=verb, back="/dead?reason=attempts")
    if verb == "discard":
        assert "Discard 4 dead letters?" in page.words
        assert len(pager.dead()) == 4
        page = await browser.post(
            "/actions/picked", *sent, csrf=page.csrf, do=verb, sure="yes", back="/dead?reason=attempts"
        )
    assert f"4 dead letters {verb}ed." in page.words
    assert page.url.partition(served.url)[2].startswith("/dead?reason=attempts&note=")
    assert (len(pager.dead()), len(chat.dead())) == (1, 1)
    assert len(pager.entries()) == (3 if verb == "replay" else 0)
    assert pager.unaccounted() == chat.unaccounted() == (0, 0)
    told = audit(caplog)
    assert [(one["user"], one["action"], one["destination"], one["count"]) for one in told] == [
        ("anonymous", verb, "pager", 3),
        ("anonymous", verb, "chat", 1),
    ]
    again = await browser.send("/dead", "/actions/picked", *sent, do=verb, sure="yes")
    assert f"0 dead letters {verb}ed. 4 others were gone already." in again.words
    none = await browser.send("/dead", "/actions/picked", do=verb, sure="yes", back="//evil.example/")
    assert "No dead letter was chosen" in none.words


@pytest.mark.parametrize("verb", ["replay", "discard"])
async def test_all_that_match(
    served: Served, browser: Browser, pager: Book, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pager.die(150, reason="rejected")
    pager.die(50)
    await served.look()
    asked = await browser.send("/dead", "/actions/matching", do=verb, reason="rejected", destination="pager")
    assert "reason rejected" in asked.words
    assert len(pager.dead()) == 200
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', asked.text))
    seen_at = int(pager.link.time()[0]) * 1000 + 60_000  # a form may say anything
    page = await browser.post(
        "/actions/matching", **{**hidden, "seen_at": str(seen_at)}, do=verb, rate="5000"
    )
    assert page.url == f"{served.url}/jobs"
    job = await ended(served)
    assert (job.state, job.done) == ("done", 150)
    assert len(pager.dead()) == 50
    assert len(pager.entries()) == (150 if verb == "replay" else 0)
    assert pager.unaccounted() == (0, 0)
    await served.look()
    assert f"done: 150 {verb}ed, looked at 200 of 200" in (await browser.get("/jobs")).words
    assert (
        audit(caplog)[0]["what"] == "job=1 filters=destination=pager&reason=rejected rate=5000/s"
        or verb == "discard"
    )
    assert audit(caplog, "console_job_over")[0]["count"] == 150


@one_kind
async def test_what_dies_after_the_question_is_left_alone(
    served: Served, browser: Browser, pager: Book
) -> None:
    pager.die(3)
    asked = await browser.send("/dead", "/actions/matching", do="discard")
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', asked.text))
    pager.die(2, at=time.time_ns() // 10**6 + 60_000)
    await browser.post("/actions/matching", **hidden, do="discard")
    assert (await ended(served)).done == 3
    assert len(pager.dead()) == 2


@one_kind
async def test_a_job_is_stopped_and_the_rest_is_where_it_was(
    served: Served, browser: Browser, pager: Book
) -> None:
    pager.die(2000)
    await served.look()
    page = await browser.send("/dead", "/actions/matching", do="replay", sure="yes", rate="50")
    job = served.desk.jobs.all[0]

    async def begun() -> bool:
        return job.done > 0

    await eventually(begun, "a first batch")
    assert (await browser.get("/jobs")).status == 200
    await browser.post("/actions/stop", csrf=page.csrf, job="1")
    await ended(served)
    assert job.state == "stopped"
    assert 0 < job.done < 2000
    assert (len(pager.entries()), len(pager.dead())) == (job.done, 2000 - job.done)
    assert pager.unaccounted() == (0, 0)
    await browser.post("/actions/matching", csrf=page.csrf, do="replay", sure="yes")
    await ended(served)
    assert (len(pager.entries()), len(pager.dead())) == (2000, 0)
    assert (await browser.post("/actions/stop", csrf=page.csrf, job="77")).status == 404


@one_kind
async def test_jobs_are_bounded_and_end_with_the_process(server: Server, pager: Book) -> None:
    pager.die(3000)
    async with console(build(server.url, ["pager"])) as made, Browser(made.url) as browser:
        for _ in range(jobs_module.AT_ONCE):
            page = await browser.send("/dead", "/actions/matching", do="replay", sure="yes", rate="1")
            assert page.status == 200
        full = await browser.post("/actions/matching", csrf=page.csrf, do="replay", sure="yes", rate="1")
        assert full.status == 409
    assert all(job.state == "stopped" for job in made.desk.jobs.all)
    assert pager.unaccounted() == (0, 0)
    assert len(pager.dead()) + len(pager.entries()) == 3000


@one_kind
async def test_a_full_queue_ends_a_replay(server: Server, pager: Book) -> None:
    pager.die(20)
    settings = build(server.url, ["pager"], queue=Queue(max_depth=5))
    async with console(settings) as made, Browser(made.url) as browser:
        await browser.send("/dead", "/actions/matching", do="replay", sure="yes")
        job = await ended(made)
        assert (job.state, job.done, len(pager.dead())) == ("stopped", 5, 15)
        assert "Start again for the rest" in (await browser.get("/jobs")).words
        assert "pager: its queue is full (5)" in job.told
        sent = [("letter", f"pager/{pager.dead()[0]}")]
        page = await browser.send("/dead", "/actions/picked", *sent, do="replay")
        assert "The queue of pager is full" in page.words


async def test_pause_and_resume(
    served: Served, browser: Browser, pager: Book, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pager.wait(2)
    await served.look()
    form = {"destination": "pager", "reason": "moving", "back": "/destination?name=pager"}
    paused = await browser.send("/destination?name=pager", "/actions/pause", **form)
    assert "pager is paused: 2 deliveries wait" in paused.words
    await served.look()
    assert re.search(r"Paused since \S+ UTC: moving\. 2 deliveries wait", (await browser.get("/")).words)
    opened = await browser.post("/actions/resume", csrf=paused.csrf, destination="pager")
    assert "pager is open again (it was paused): 2 deliveries wait" in opened.words
    assert (await browser.post("/actions/pause", csrf=paused.csrf, destination="nobody")).status == 404
    assert [one["action"] for one in audit(caplog)] == ["pause", "resume"]
    assert audit(caplog)[0]["what"] == "reason=moving before=open"


async def test_retire(served: Served, browser: Browser, pager: Book) -> None:
    old = Book(pager.link, "old")
    old.wait(3)
    await served.look()
    page = await browser.get("/destination?name=old")
    assert "Retire" in page.words
    assert (await browser.post("/actions/retire", csrf=page.csrf, destination="pager")).status == 409
    await browser.post("/actions/retire", csrf=page.csrf, destination="old")
    assert (await ended(served)).done == 3
    assert len(old.dead()) == 3
    assert old.unaccounted() == (0, 0)
    sent = [("letter", f"old/{old.dead()[0]}")]
    refused = await browser.post("/actions/picked", *sent, csrf=page.csrf, do="replay")
    assert refused.status == 409
    assert "nobody would deliver" in refused.words


async def test_a_test_alert_and_its_way(
    served: Served, browser: Browser, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    page = await browser.send(
        "/send", "/actions/send", host="web-1", name="test", severity="critical", summary="hi"
    )
    assert "Sent to pager, chat." in page.words
    assert "queued" in page.words
    one = await browser.send("/send", "/actions/send", host="web-1", name="test", destination="chat")
    assert "Sent to chat." in one.words
    await served.look()
    assert served.desk.watch.board["chat/depth"] == "2"
    assert served.desk.watch.board["all/ledger_state"] == "good"
    [entry] = await redis.execute_command("XRANGE", keys.stream(NAMESPACE, "pager"), "-", "+")
    alert = json.loads(entry[1][b"alert"])
    assert (alert["host"], alert["severity"], alert["summary"]) == ("web-1", "critical", "hi")
    assert [one["destination"] for one in audit(caplog)] == ["pager chat", "chat"]
    csrf = one.csrf if "csrf" in one.text else (await browser.get("/send")).csrf
    for fields in ({"host": ""}, {"severity": "x"}, {"status": "x"}, {"name": "x" * 300}):
        told = {"host": "h", "name": "n", **fields}
        assert (await browser.post("/actions/send", csrf=csrf, **told)).status == 400
    gone = await browser.post("/actions/send", csrf=csrf, host="h", name="n", destination="nobody")
    assert gone.status == 404


@one_kind
async def test_a_key_that_nobody_knows(browser: Browser) -> None:
    assert "No destination knows this key" in (await browser.get("/way?key=web-1:x:1")).words
    assert (await browser.get("/way?key=%00%FF")).status == 200


@one_kind
async def test_what_is_being_tried(served: Served, browser: Browser, redis: Redis) -> None:
    settings = served.desk.settings
    wire = Wire(redis)
    alert = Alert(key="web-1:disk:1", incident="web-1:disk", host="web-1", name="disk", timestamp=1)
    await Store(wire, settings, cluster=True).append([alert], {"pager": [0]})
    stream = keys.stream(NAMESPACE, "pager")
    await redis.xgroup_create(stream, keys.GROUP, "0", mkstream=True)
    await redis.xreadgroup(keys.GROUP, "replica-1", {stream: ">"})
    await redis.zadd(keys.retry(NAMESPACE, "pager"), {b"1-1 \xff": int(time.time() * 1000) + 90_000})
    await served.look()
    for path in ("/work", "/destination?name=pager"):
        told = (await browser.get(path)).words
        assert "web-1:disk:1 in flight" in told
        assert "replica-1" in told
        assert re.search(r"unreadable retrying in [6-9]\ds", told)
    await redis.zadd(keys.retry(NAMESPACE, "pager"), {b"1-1 \xff": 1})
    for gate, waits in (({}, "due now"), ({"state": "breaker"}, "due, waits for the gate")):
        for field, value in gate.items():
            await redis.hset(keys.gate(NAMESPACE, "pager"), field, value)
        await served.look()
        for path in ("/work", "/destination?name=pager"):
            assert f"unreadable retrying {waits}" in (await browser.get(path)).words
    await wire.close()


@one_kind
async def test_signing_in_and_out(guarded: tuple[Served, Browser], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    served, browser = guarded
    page = await browser.get("/dead?reason=attempts")
    assert page.url.startswith(f"{served.url}/sign-in?next=")
    assert 'value="/dead?reason=attempts"' in page.text
    wrong = await browser.sign_in("nonsense")
    assert (wrong.status, "this token is not known" in wrong.words) == (401, True)
    for after in ("//evil.example", "https://evil.example/", "/\\evil", "/actions/send", "/dead\r\nX: y"):
        told = await browser.answer("/sign-in", token="secret", next=after)
        assert (told.status, told.headers["Location"]) == (303, "/")
    told = await browser.answer("/sign-in", token="secret", next="/dead?reason=attempts")
    assert told.headers["Location"] == "/dead?reason=attempts"
    cookie = told.headers["Set-Cookie"]
    assert re.match(r"redispatch_console=[\w-]{43}; HttpOnly; Path=/; SameSite=Strict$", cookie), cookie
    page = await browser.get("/dead")
    assert "Sign out alice" in page.words
    await browser.post("/sign-out", csrf=page.csrf)
    assert "/sign-in" in (await browser.get("/dead")).url
    assert [(one["let_in"], one.get("user")) for one in audit(caplog, "console_sign_in")][:2] == [
        (False, None),
        (True, "alice"),
    ]
    assert "secret" not in str([record.__dict__ for record in caplog.records])


@one_kind
async def test_the_cookie_where_there_is_tls(guarded: tuple[Served, Browser]) -> None:
    _, browser = guarded
    browser.headers["X-Forwarded-Proto"] = "https"
    told = await browser.answer("/sign-in", token="secret")
    assert told.headers["Set-Cookie"].startswith("__Host-redispatch_console=")
    assert "Secure" in told.headers["Set-Cookie"]


@one_kind
async def test_too_many_wrong_tokens(guarded: tuple[Served, Browser]) -> None:
    _, browser = guarded
    pages = [await browser.sign_in(f"guess {n}") for n in range(11)]
    assert [page.status for page in pages] == [401] * 10 + [429]
    assert pages[-1].headers["Retry-After"] == "60"
    assert (await browser.sign_in("secret")).status == 200


@one_kind
@pytest.mark.parametrize("path", [*PAGES, "/live"])
async def test_nothing_is_shown_before_that(guarded: tuple[Served, Browser], pager: Book, path: str) -> None:
    pager.die(key="a-secret-key")
    _, browser = guarded
    page = await browser.get(path, follow=False)
    assert page.status == (401 if path == "/live" else 303)
    assert "a-secret-key" not in page.text


@one_kind
@pytest.mark.parametrize("path", ACTIONS)
async def test_who_may_do_it(guarded: tuple[Served, Browser], pager: Book, path: str) -> None:
    """Nobody without a session, nobody who may only look, no other site's form, none without its csrf."""
    [one] = pager.die()
    served, browser = guarded
    told = {
        "do": "discard",
        "sure": "yes",
        "letter": f"pager/{one}",
        "destination": "pager",
        "host": "h",
        "name": "n",
    }
    before = pager.link.dbsize()
    assert (await browser.post(path, csrf="", **told)).status == 401
    await browser.sign_in("look")
    page = await browser.get("/dead")
    assert "Discard" not in page.words
    assert (await browser.post(path, csrf=page.csrf, **told)).status == 403
    async with Browser(served.url) as other:
        await other.sign_in("secret")
        theirs = (await other.get("/dead")).csrf
        for csrf in ("", "x", page.csrf):
            assert (await other.post(path, csrf=csrf, **told)).status == 403
        other.headers["Origin"] = "https://evil.example"
        assert (await other.post(path, csrf=theirs, **told)).status == 403
        del other.headers["Origin"]
        assert (await other.get(path)).status == 405
    assert pager.dead() == [one]
    assert pager.link.dbsize() == before
    assert served.desk.jobs.all == []


@one_kind
async def test_other_names_and_other_forms(served: Served, browser: Browser) -> None:
    rebound = await browser.get("/", Host="evil.example")
    assert (rebound.status, "evil.example" in rebound.words) == (421, True)
    assert (await browser.get("/healthz", Host="10.1.2.3")).status == 200
    page = await browser.get("/send")
    json_body = {"Content-Type": "application/json"}
    async with browser.session.post(f"{served.url}/actions/send", headers=json_body, data=b"{}") as answer:
        assert answer.status == 415
    large = await browser.post("/actions/send", csrf=page.csrf, host="h", name="n", summary="x" * 70_000)
    assert large.status == 413


@one_kind
async def test_figures_follow(served: Served, browser: Browser, pager: Book) -> None:
    running = asyncio.create_task(served.desk.watch.run())
    try:
        async with asyncio.timeout(20), browser.session.get(f"{served.url}/live") as stream:
            assert stream.headers["Content-Type"] == "text/event-stream"
            lines = (line.decode() async for line in stream.content)
            whole = json.loads(await anext(_data(lines, 1)))
            assert whole["pager/depth"] == "0"
            pager.wait(5)
            async for line in _data(lines, 100):
                news = json.loads(line)
                if news.get("pager/depth") == "5":
                    break
            assert "chat/depth" not in news
    finally:
        running.cancel()


async def _data(lines: AsyncIterator[str], most: int) -> AsyncIterator[str]:
    async for line in lines:
        if line.startswith("data: "):
            yield line.removeprefix("data: ")
            most -= 1
            if not most:
                return


@one_kind
async def test_a_stream_ends_with_its_session_and_with_the_service(guarded: tuple[Served, Browser]) -> None:
    served, browser = guarded
    await browser.sign_in("secret")
    async with asyncio.timeout(20), browser.session.get(f"{served.url}/live") as stream:
        await stream.content.readline()
        await browser.send("/", "/sign-out")
        await served.look()
        await stream.content.read()
    await browser.sign_in("look")
    async with asyncio.timeout(20), browser.session.get(f"{served.url}/live") as stream:
        await stream.content.readline()
        served.desk.live.close()
        await stream.content.read()


async def test_redis_that_is_away_is_said(new_server: Callable[..., Server]) -> None:
    server = new_server()
    with link(server) as client:
        Book(client, "pager").wait(3)
    async with console(build(server.url, ["pager"])) as made, Browser(made.url) as browser:
        csrf = (await browser.get("/send")).csrf
        server.kill()
        await made.look()
        page = await browser.get("/")
        assert page.status == 200
        assert made.desk.watch.fault  # refused or too slow, whichever came first
        assert " ".join(made.desk.watch.fault.split()) in page.words
        assert "When Redis last answered: " in page.words
        away = await browser.get("/dead")
        assert (away.status, away.headers["Refresh"]) == (503, "5")
        lost = await browser.post("/actions/send", csrf=csrf, host="h", name="n")
        assert (lost.status, "Traceback" in lost.text) == (503, False)
        server.restart()

        async def back() -> bool:
            await made.look()
            return made.desk.watch.fault is None and "Nothing is lost" in (await browser.get("/")).words

        await eventually(back, "a page without complaint")
        assert (await browser.get("/dead")).status == 200


@one_kind
async def test_a_changed_configuration(served: Served, browser: Browser, server: Server) -> None:
    before = served.desk.watch.board["all/shape"]
    await served.service._take(build(server.url, ["pager", Destination(name="new", type="discard")]))
    await served.look()
    assert served.desk.watch.board["all/shape"] != before
    assert "new" in (await browser.get("/")).words
