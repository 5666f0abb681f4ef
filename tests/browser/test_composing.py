"""Writing on the chat page: completion of names, drafts, shortcuts, no connection, long talks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, CDPSession, Page, Route, ViewportSize, expect

from tests.browser.pages import exchanges, is_live, opened, say
from tests.browser.server import Server
from tests.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = ViewportSize(width=390, height=700)
MESSAGES = 500
LONGEST_TASK = 100
"""Milliseconds."""


@pytest.fixture(scope="module")
def server(chat_server: Server) -> Server:
    """One server for the tests of this file: each uses a browser and conversations of its own."""
    return chat_server


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, server: Server) -> AsyncIterator[Page]:
    async with opened(browser, server) as page:
        yield page


async def test_a_name_is_completed_by_keyboard_and_routes_the_message(page: Page) -> None:
    message = page.get_by_label("Message")
    await message.press_sequentially("@")
    options = page.get_by_role("listbox").get_by_role("option")
    await expect(options).not_to_have_count(0)
    await message.press_sequentially("pa")
    await expect(options).to_have_count(1)
    await expect(options).to_contain_text("Pair @pair · team")
    await expect(message).to_have_attribute("aria-haspopup", "listbox")
    assert await message.get_attribute("aria-expanded") is None, "a text field has no such state"
    await expect(message).to_have_attribute("aria-activedescendant", "mention-0")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("listbox")).to_have_count(0)
    await message.fill("@")
    await message.press_sequentially("co")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await expect(message).to_have_value("@counter ")
    await message.press_sequentially("one")
    await page.keyboard.press("Enter")
    await expect(page.locator(".bubble.theirs")).to_contain_text("answer number")
    await expect(page.locator(".who strong")).to_have_text("Counter")


async def test_a_mention_in_the_text_wins_over_the_chosen_agent(page: Page) -> None:
    await say(page, "@counter two", "writer")
    await expect(page.locator(".bubble.theirs")).to_contain_text("answer number")


async def test_each_conversation_keeps_its_own_draft(page: Page) -> None:
    await say(page, "draft topic one")
    await exchanges(page, 1)
    await page.get_by_label("Message").fill("half of one")
    await page.get_by_role("button", name="New chat").click()
    await expect(page.get_by_label("Message")).to_have_value("")
    await say(page, "draft topic two")
    await exchanges(page, 1)
    first = page.get_by_role("link", name="draft topic one")
    await expect(first).to_contain_text("Draft")
    await page.get_by_label("Message").fill("half of two")
    await first.click()
    await expect(page.get_by_label("Message")).to_have_value("half of one")
    await page.reload()
    await expect(page.get_by_label("Message")).to_have_value("half of one")
    await page.go_back()
    await expect(page.get_by_label("Message")).to_have_value("half of two")


async def test_shortcuts_are_listed_and_work(page: Page) -> None:
    await say(page, "shortcut topic")
    await exchanges(page, 1)
    await expect(page.locator("a.conversation").first).to_contain_text("shortcut topic")
    await page.keyboard.press("Control+Shift+O")
    await expect(page.locator(".exchange")).to_have_count(0)
    await page.keyboard.press("Alt+ArrowDown")
    await expect(page.locator(".bubble.mine")).to_have_text("shortcut topic")
    await page.locator("#log").focus()
    await page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(sheet).to_contain_text("Search conversations")
    await page.keyboard.press("Escape")
    await expect(sheet).to_have_count(0)
    await expect(page.locator("#log")).to_be_focused()
    await page.keyboard.press("/")
    await expect(page.get_by_label("Message")).to_be_focused()
    await page.keyboard.type("a question?")
    await expect(page.get_by_label("Message")).to_have_value("a question?")


async def test_escape_stops_the_answer(page: Page) -> None:
    await say(page, "take your time", "slow")
    await expect(page.locator(".steps")).to_contain_text("slow is working")
    await page.keyboard.press("Escape")
    await expect(page.locator(".state")).to_contain_text("stopped")


async def test_escape_elsewhere_stops_no_answer(browser: Browser, server: Server) -> None:
    async with opened(browser, server, viewport=PHONE) as page:
        await say(page, "take your time", "slow")
        await expect(page.locator(".steps")).to_contain_text("slow is working")
        await page.get_by_role("button", name="Menu").click()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Menu")).to_be_focused()
        await page.set_viewport_size({"width": 1100, "height": 750})
        await page.get_by_label("Search conversations").focus()
        await page.keyboard.press("Escape")
        await expect(page.locator(".steps")).to_contain_text("slow is working")
        await expect(page.locator(".toast")).to_have_count(0)
        await page.get_by_label("Message").press("Escape")
        await expect(page.locator(".state")).to_contain_text("stopped")


async def test_without_a_connection_the_page_says_so_and_goes_on_by_itself(page: Page) -> None:
    await page.context.set_offline(True)
    await expect(page.locator("#line")).to_have_attribute("data-state", "away")
    await say(page, "are you there?")
    await expect(page.locator(".state")).to_contain_text("not sent: no connection")
    await page.context.set_offline(False)
    await is_live(page)
    await expect(page.locator(".bubble.theirs")).to_have_text("you said are you there?")


async def test_times_are_relative_and_exact_on_hover(page: Page) -> None:
    await say(page, "what time is it?")
    await exchanges(page, 1)
    time = page.locator(".answer time")
    await expect(time).to_have_text("just now")
    await time.hover()
    year = await page.evaluate("String(new Date().getFullYear())")
    assert year in (await time.get_attribute("title") or "")


async def test_back_and_forward_go_through_conversations(page: Page) -> None:
    for text in ("history one", "history two"):
        await page.get_by_role("button", name="New chat").click()
        await say(page, text)
        await exchanges(page, 1)
    await page.get_by_role("link", name="history one").click()
    await expect(page.locator(".bubble.mine")).to_have_text("history one")
    await page.go_back()
    await expect(page.locator(".bubble.mine")).to_have_text("history two")
    await page.go_forward()
    await expect(page.locator(".bubble.mine")).to_have_text("history one")


FILL = """async ([address, count]) => {
  for (let nth = 0; nth < count; nth += 1) {
    await fetch("/api/message", {
      method: "POST", headers: { "content-type": "application/json" },
      body: JSON.stringify({ message: `message ${nth}`, ...address }),
    });
  }
}"""
ADDRESS = {"channel": "web", "sender": "web", "senderId": "many", "conversation": "long"}
STEP_UP = """async () => {
  const log = document.querySelector("#log");
  log.scrollTop = Math.max(0, log.scrollTop - 900);
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  return document.querySelectorAll(".exchange").length;
}"""


async def processor_time(client: CDPSession) -> float:
    """Milliseconds that the page's thread has spent in tasks, however busy the machine is."""
    metrics = (await client.send("Performance.getMetrics"))["metrics"]
    return 1000 * float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


async def scroll_to_the_beginning(page: Page) -> float:
    """Scroll up, screen by screen. Returns the processor time of the most expensive one."""
    client = await page.context.new_cdp_session(page)
    await client.send("Performance.enable", {"timeDomain": "threadTicks"})
    longest, before = 0.0, await processor_time(client)
    for _ in range(3 * MESSAGES):
        shown = await page.evaluate(STEP_UP)
        now = await processor_time(client)
        longest, before = max(longest, now - before), now
        if shown == MESSAGES:
            return longest
    pytest.fail("the beginning never came")


async def test_a_thousand_lines_scroll_without_a_long_task_and_jump_to_the_newest(
    page: Page, server: Server
) -> None:
    await page.evaluate(FILL, [ADDRESS, MESSAGES])
    last = page.locator(".bubble.theirs", has_text=f"you said message {MESSAGES - 1}")

    async def longest_task() -> float:
        await page.goto(f"{server.address}/?c=web:many/long")
        await expect(last).to_be_visible(timeout=120_000)
        return await scroll_to_the_beginning(page)

    # A pause for garbage collection does not recur; a slow page is slow again.
    took = await longest_task()
    assert took < LONGEST_TASK or await longest_task() < LONGEST_TASK
    jump = page.get_by_role("button", name="Jump to newest")
    await jump.click()
    await expect(last).to_be_in_viewport()
    await expect(jump).to_be_hidden()


async def test_messages_stay_in_order_and_seen_answers_are_not_new_if_clocks_differ(
    page: Page,
) -> None:
    read = 0

    async def a_minute_ahead(route: Route) -> None:
        nonlocal read
        if read == 6:
            await route.abort()
            return
        answer = await route.fetch()
        rows = [row | {"timestamp": row["timestamp"] + 60_000} for row in await answer.json()]
        await route.fulfill(response=answer, json=rows)
        read = len({row["messageId"] for row in rows})

    await page.route("**/api/conversations/*/messages?*", a_minute_ahead)
    for nth in range(6):
        await say(page, f"line {nth}")
        await exchanges(page, nth + 1)
    await until(lambda: read == 6)
    for nth in range(6, 12):
        await say(page, f"line {nth}")
    await exchanges(page, 12)
    texts = await page.locator(".bubble.mine").all_text_contents()
    assert texts == [f"line {nth}" for nth in range(12)]
    await page.locator("#log").evaluate("node => { node.scrollTop = 0; }")
    await expect(page.get_by_role("button", name="Jump to newest")).to_be_visible()


async def test_a_new_answer_below_is_counted_and_does_not_move_the_page(
    page: Page, server: Server
) -> None:
    for nth in range(12):
        await say(page, f"line {nth}")
    await exchanges(page, 12)
    await page.locator("#log").evaluate("node => { node.scrollTop = 0; }")
    await expect(page.get_by_role("button", name="Jump to newest")).to_be_visible()
    conversation = await page.evaluate("localStorage.getItem('holdfast.chat.conversation')")
    sender, topic = json.loads(conversation).removeprefix("web:").split("/")
    address = {"channel": "web", "sender": "web", "senderId": sender, "conversation": topic}
    await page.evaluate(FILL, [address, 1])
    await expect(page.get_by_role("button", name="1 new answer")).to_be_visible()
    assert await page.locator("#log").evaluate("node => node.scrollTop") < 50
    await page.get_by_role("button", name="1 new answer").click()
    await expect(page.locator(".bubble.theirs").last).to_be_in_viewport()
