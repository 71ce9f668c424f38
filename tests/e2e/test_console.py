"""The console in a real browser, on a running system: what somebody on call does at three in the morning.

One Chromium for all of it. Whatever is done, the browser may report no error, and no breach of the policy.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from hashlib import sha256

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.support.fleet import Fleet, Fleets, Running
from tests.support.processes import Processes
from tests.support.receiver import Answer, Receiver
from tests.support.senders import installed
from tests.support.servers import Server, as_user

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
]
PATIENCE = 60_000  # ms for whatever is waited for
TOKEN, LOOKER = "the token of alice", "the token of the wall"
WIDTHS = (1280, 375)
PATHS = ("/", "/work", "/dead", "/way", "/send", "/jobs", "/destination?name=hook", "/nowhere")
expect.set_options(timeout=PATIENCE)
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def chromium(processes: Processes) -> AsyncIterator[Browser]:
    """Which goes when `processes` do."""
    async with async_playwright() as made:
        browser = await made.chromium.launch(
            executable_path=installed("chromium"), args=FLAGS, timeout=PATIENCE
        )
        yield browser
        await browser.close()


@pytest.fixture
async def context(chromium: Browser) -> AsyncIterator[BrowserContext]:
    """One visitor; errors of pages fail the test."""
    made = await chromium.new_context(color_scheme="dark")
    made.set_default_timeout(PATIENCE)
    told: list[str] = []

    def watch(page: Page) -> None:
        page.on("console", lambda message: told.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda fault: told.append(str(fault)))

    made.on("page", watch)
    yield made
    await made.close()
    # What a page without a token, or with a wrong one, is answered is told as an error, too; and that the
    # console has ended, should the page have asked for news once more.
    assert [line for line in told if not re.search("status of 40[134]|ERR_CONNECTION_REFUSED", line)] == []


async def started(fleet: Fleet) -> Running:
    """`redispatch console`, as its own user of the server."""
    tokens = [("alice", TOKEN, False), ("wall", LOOKER, True)]
    fleet.sections["console"] = {
        "listen": "127.0.0.1:0",
        "tokens": [
            {"name": name, "sha256": sha256(token.encode()).hexdigest(), "read_only": read_only}
            for name, token, read_only in tokens
        ],
    }
    environ = {"REDISPATCH_REDIS_URL": as_user(fleet.server.url, "console")}
    process = await fleet.processes.redispatch("console", config=fleet.config(), env=environ)
    return await fleet.listening(process, None)


async def sign_in(page: Page, console: Running, token: str) -> None:
    """By the keyboard alone: the field has the focus."""
    await page.goto(console.url)
    await expect(page.get_by_label("Token")).to_be_focused()
    await page.keyboard.type(token)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("navigation", name="Pages")).to_be_visible()


async def to(page: Page, name: str, most: int = 60) -> None:
    """Press Tab until what has the focus is called so."""
    for _ in range(most):
        await page.keyboard.press("Tab")
        if name in await page.evaluate("document.activeElement.textContent.trim()"):
            outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid", f"nobody sees that {name} has the focus"
            return
    raise AssertionError(f"Tab does not lead to {name}")


async def test_three_in_the_morning(
    fleets: Fleets, valkey: Server, receiver: Receiver, context: BrowserContext
) -> None:
    """An alert dies, is found, replayed with a click, and arrives; then the same by the keyboard."""
    fleet = await fleets(valkey, destination={"retry": {"attempts": 2, "base": "1ms", "cap": "1ms"}})
    console, _ = await asyncio.gather(started(fleet), fleet.dispatcher())
    page = await context.new_page()
    await sign_in(page, console, TOKEN)
    await expect(page.locator("#live")).to_have_text("live")

    receiver.answers.extend([Answer(503), Answer(503)])
    await page.get_by_role("link", name="Send a test").click()
    await page.get_by_label("Name, what is wrong with it").fill("disk-full")
    await page.get_by_label("Severity").select_option("critical")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_text("Sent to hook.")).to_be_visible()
    await expect(page.locator("#way")).to_contain_text("given up")  # it follows by itself
    await expect(page.locator("#way")).to_contain_text("2 failed attempts")
    await page.get_by_role("link", name="Its dead letter").click()
    await expect(page.locator(".row")).to_contain_text("attempts 503")
    await page.get_by_role("link", name="disk-full on").click()
    await expect(page.locator("pre")).to_contain_text('"name": "disk-full"')
    await page.get_by_role("button", name="Replay").click()
    await expect(page.get_by_text("1 dead letter replayed.")).to_be_visible()
    await fleet.wait_snapshot(lambda seen: seen.ledger.delivered == 1, "its arrival")

    receiver.answers.extend([Answer(422)])
    await page.goto(console.url + "/send")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator("#way")).to_contain_text("given up")
    await page.goto(console.url)
    await page.keyboard.press("Tab")
    await expect(page.get_by_text("Skip to the content")).to_be_focused()
    await to(page, "Dead letters")
    await page.keyboard.press("Enter")
    await expect(page.locator(".row")).to_have_count(1)
    await page.wait_for_load_state()  # the script is there, too
    await page.keyboard.press("/")
    await expect(page.get_by_label("Text in key")).to_be_focused()
    await page.keyboard.type("test")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("text=test"))
    await page.wait_for_load_state()
    await page.get_by_label("all on this page").focus()
    await page.keyboard.press("Space")
    await expect(page.locator(".row input:checked")).to_have_count(1)
    await to(page, "Replay chosen")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("1 dead letter replayed.")).to_be_visible()
    await fleet.wait_snapshot(lambda seen: seen.ledger.delivered == 2, "its arrival")

    await page.goto(console.url)
    await expect(page.locator(".ledger")).to_have_text("Nothing is lost: all 2 deliveries are accounted for.")
    await expect(page.locator('[data-live="hook/depth"]')).to_have_text("0")
    audit = [(line["user"], line["action"]) for line in console.lines("console_action")]
    assert audit == [("alice", "send"), ("alice", "replay")] * 2
    assert await console.process.stop() == 0


async def without_javascript(chromium: Browser, console: Running) -> None:
    """Its main actions are forms."""
    plain = await chromium.new_context(java_script_enabled=False)
    page = await plain.new_page()
    await page.goto(console.url + "/destination?name=hook")
    await page.get_by_label("Token").fill(TOKEN)
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_label("Why, for those who look").fill("<b>moving</b>")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_text("hook is paused: 0 deliveries wait")).to_be_visible()
    await page.reload()
    await expect(page.locator(".told")).to_contain_text("<b>moving</b>")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_text("hook is open again")).to_be_visible()
    await plain.close()


async def test_pages_fit_stand_still_and_can_be_read(
    fleets: Fleets, valkey: Server, chromium: Browser, context: BrowserContext
) -> None:
    """On a desk and on a phone nothing sticks out, nothing moves, and each field has a name."""
    fleet = await fleets(valkey)
    console = await started(fleet)
    page = await context.new_page()
    await sign_in(page, console, LOOKER)
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 800})
        for path in PATHS:
            await page.goto(console.url + path)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            assert await page.title()
            assert await page.get_by_role("heading", level=1).count() == 1, path
            nameless = """() => [...document.querySelectorAll("input:not([type=hidden]), select, button")]
                .filter((each) => each.labels !== null && !each.labels.length && !each.textContent.trim())
                .map((each) => each.outerHTML)"""
            assert await page.evaluate(nameless) == [], path
    moved = """() => new Promise((done) => {
        let sum = 0;
        new PerformanceObserver((list) => { for (const each of list.getEntries()) sum += each.value; })
          .observe({type: "layout-shift", buffered: true});
        setTimeout(() => done(sum), 1500);  // a board and a half
    })"""
    await page.goto(console.url)
    await expect(page.locator("#live")).to_have_text("live")
    assert await page.evaluate(moved) < 0.01
    assert await page.get_by_role("button").all_inner_texts() == ["Sign out wall"]
    await without_javascript(chromium, console)
