"""The overview and the wall: numbers, workers and concerns, live, and what a role may do."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Browser, Route, expect

from holdfast.queue.event import NewEvent
from holdfast.store import open_store
from holdfast.testing.history import GeneratedHistory, fill_history
from tests.browser.operator import Operator, operator
from tests.browser.requests import send
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONGEST_TASK = 100
"""Milliseconds of processor time that a task of the page may take."""


async def test_work_in_progress_is_shown_with_its_worker_while_it_lasts(admin: Operator) -> None:
    page = await admin.open("/console")
    working = page.locator(".tile").filter(has_text="Working")
    await expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    await expect(page.locator(".worker")).to_have_count(1)
    await send(page, "take your time", "slow")
    await expect(working.locator(".tile-value")).to_have_text("1")
    turn = page.locator(".work").filter(has_text="slow")
    await expect(turn).to_be_visible()
    await expect(turn.locator("time")).not_to_be_empty()
    admin.server.allow("go")
    await expect(turn).to_have_count(0)
    await expect(working.locator(".tile-value")).to_have_text("0")


async def test_a_dead_letter_needs_a_person_first(admin: Operator) -> None:
    page = await admin.open("/console")
    await expect(page.locator(".tiles")).to_contain_text("Dead letters")
    await send(page, "nobody can", "broken")
    concern = page.locator(".attention").filter(has_text="dead letter")
    await expect(concern.first).to_be_visible()
    box = await page.locator(".needs").bounding_box()
    tiles = await page.locator(".tiles").bounding_box()
    assert box is not None
    assert tiles is not None
    assert box["y"] < tiles["y"]
    await concern.first.get_by_role("link").click()
    await expect(page).to_have_url(f"{admin.server.address}/console/dead?queue=inbox")


async def test_an_ailing_channel_is_named_with_its_problem_until_it_is_back(
    admin: Operator,
) -> None:
    page = await admin.open("/console")
    pager = page.locator(".health").filter(has_text="pager")
    await expect(pager).to_contain_text("ok")
    admin.server.allow("unplugged")
    await expect(pager).to_contain_text("failing")
    await expect(pager).to_contain_text("the <b>antenna</b> is unplugged")
    await expect(page.locator(".attention").filter(has_text="antenna")).to_be_visible()
    await page.goto(f"{admin.server.address}/status")
    await expect(page.get_by_role("list", name="Health")).to_contain_text("pager failing")
    listed = await page.locator(".attention").count()
    await expect(page.locator("#headline")).to_have_text(re.compile(f"^{listed} thing"))
    admin.server.forbid("unplugged")
    await expect(page.get_by_role("list", name="Health")).to_contain_text("pager ok")


async def test_a_page_shows_its_shape_until_its_data_comes(admin: Operator) -> None:
    page = await admin.open("/status")
    held = asyncio.Event()

    async def hold(route: Route) -> None:
        await held.wait()
        await route.continue_()

    await page.route("**/api/dead/groups", hold)
    await page.goto(f"{admin.server.address}/console/dead", wait_until="commit")
    await expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()
    await expect(page.locator("#page-body .skeleton").first).to_be_visible()
    held.set()
    await expect(page.locator("#page-body .skeleton")).to_have_count(0)


async def test_charts_have_names_numbers_and_a_window_in_the_address(admin: Operator) -> None:
    history = GeneratedHistory(rows=2000, until=datetime.now(UTC), over=timedelta(days=6))
    await asyncio.to_thread(fill_history, admin.server.database, history)
    page = await admin.open("/console?window=week")
    week = page.get_by_role("button", name="Week")
    await expect(week).to_have_attribute("aria-pressed", "true")
    for title in ("Throughput", "Time to answer", "Failures"):
        await expect(page.get_by_role("img", name=title)).to_be_visible()
    await page.locator("summary").filter(has_text="of Throughput").click()
    table = page.get_by_role("table", name="Throughput")
    await expect(table.get_by_role("row")).to_have_count(85)
    await page.get_by_role("button", name="Day").click()
    await expect(page).to_have_url(f"{admin.server.address}/console?window=day")


async def test_numbers_go_on_by_themselves_after_a_restart_of_the_server(admin: Operator) -> None:
    page = await admin.open("/console")
    line = page.locator("#line")
    await expect(line).to_have_attribute("data-state", "live")
    await expect(page.locator(".tiles .tile").first).to_be_visible()
    process = await page.locator(".worker-head strong").inner_text()
    admin.server.end(signal.SIGKILL)
    await expect(line).to_have_attribute("data-state", "away")
    await expect(page.locator(".tiles .tile").first).to_be_visible()
    admin.server.start()
    await expect(line).to_have_attribute("data-state", "live")
    await expect(page.locator(".worker-head strong").filter(has_text=process)).to_have_count(0)


async def hundred_frames_a_second(server: Server, channel: str, seconds: int) -> None:
    """Store messages for an agent that nobody serves; each is a frame of the stream."""
    async with open_store(server.database) as store:
        ends_at = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < ends_at:
            payload = {"kind": "message", "channel": channel, "sender": "flood", "message": "hello"}
            await store.put([NewEvent(event=payload, target="nobody") for _ in range(10)])
            await asyncio.sleep(0.1)


def longest_task(trace: bytes) -> float:
    """Milliseconds of processor time of the longest task on a main thread of a page."""
    events = json.loads(trace)["traceEvents"]
    threads = {
        (one["pid"], one["tid"])
        for one in events
        if one["name"] == "thread_name" and one["args"].get("name") == "CrRendererMain"
    }
    tasks: list[float] = [
        one["tdur"] / 1000
        for one in events
        if one["name"] == "RunTask" and "tdur" in one and (one["pid"], one["tid"]) in threads
    ]
    assert len(tasks) > 100, "the trace has no tasks"
    return max(tasks)


SIGNS = {
    "/console": "svg.chart-picture",
    "/status": "svg.chart-picture",
    "/console/messages": "tr[data-id]",
    "/": "#line[data-state=live]",
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("path", SIGNS)
async def test_a_hundred_frames_a_second_leave_the_page_responsive(
    browser: Browser, admin: Operator, path: str
) -> None:
    page = await admin.open("/status")
    await send(page, "one for the list", "echo", channel="web")
    await admin.open(path)
    await expect(page.locator(SIGNS[path]).first).to_be_visible()
    categories = ["disabled-by-default-devtools.timeline", "devtools.timeline", "toplevel"]
    await browser.start_tracing(page=page, categories=categories)
    await hundred_frames_a_second(admin.server, "web" if path == "/" else "api", seconds=5)
    assert longest_task(await browser.stop_tracing()) < LONGEST_TASK


async def test_the_wall_says_at_a_glance_whether_somebody_is_needed(admin: Operator) -> None:
    page = await admin.open("/status")
    await send(page, "nobody can", "broken")
    await expect(page.get_by_role("status")).to_have_text(re.compile("things? needs? a person"))
    await expect(page.locator("body")).to_have_attribute("data-tone", "bad")
    await expect(page.locator(".figure")).to_have_count(6)
    await expect(page.get_by_role("list", name="Health")).to_contain_text("Database ok")
    admin.server.end(signal.SIGKILL)
    await expect(page.locator("#line")).to_contain_text("The server is away")
    admin.server.start()
    await expect(page.locator("#line")).to_be_empty()


async def test_a_reader_sees_everything_and_is_told_why_nothing_can_be_paused(
    browser: Browser, shared_server: Server
) -> None:
    async with operator(browser, shared_server, role="read", name="guest") as guest:
        page = await guest.open("/console")
        pause = page.get_by_role("button", name="Pause the queue inbox")
        await expect(pause).to_have_attribute("aria-disabled", "true")
        await expect(pause).to_have_accessible_description(
            "Needs the role admin; guest has the role read."
        )
        await pause.click(force=True)
        await expect(page.locator(".toast")).to_contain_text("Needs the role admin")


async def test_an_unknown_address_says_so(admin: Operator) -> None:
    page = await admin.open("/console/no/such/page")
    await expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    await page.get_by_role("link", name="To the overview").click()
    await expect(page.get_by_role("heading", name="Needs a person")).to_be_visible()


async def test_without_a_session_the_console_asks_for_a_login(
    browser: Browser, shared_server: Server
) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{shared_server.address}/console")
    await expect(page.get_by_role("heading", name="Not logged in")).to_be_visible()
    await context.close()
