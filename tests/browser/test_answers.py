"""Answers on the chat page: Markdown, growing blocks, the work behind them, stop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from tests.browser.pages import exchanges, opened, say
from tests.browser.requests import ask
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="module")
def server(chat_server: Server) -> Server:
    return chat_server


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, server: Server) -> AsyncIterator[Page]:
    permissions = ["clipboard-read", "clipboard-write"]
    async with opened(browser, server, permissions=permissions) as page:
        yield page


async def test_markdown_is_shown_with_tables_tasks_and_code_that_can_be_copied(page: Page) -> None:
    await say(page, "show me", "writer")
    await exchanges(page, 1)
    for _ in range(2):
        answer = page.locator(".bubble.theirs")
        await expect(answer.get_by_role("heading", name="Title")).to_be_visible()
        await expect(answer.get_by_role("cell", name="one")).to_be_visible()
        await expect(answer.get_by_role("img", name="done")).to_be_visible()
        await expect(answer.locator("blockquote")).to_have_text("quoted")
        await expect(answer.locator("pre .hl-k").first).to_have_text("def")
        await expect(answer.locator(".code-bar")).to_contain_text("python")
        link = answer.get_by_role("link", name="link")
        await expect(link).to_have_attribute("href", "https://example.org/page")
        await expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")
        await page.reload()
    await page.get_by_role("button", name="Copy code").click()
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == "def answer() -> int:\n    return 42"
    await page.get_by_role("button", name="Copy answer").click()
    assert (await page.evaluate("navigator.clipboard.readText()")).startswith("# Title")


async def test_blocks_of_a_growing_answer_are_shown_as_markdown_before_it_ends(page: Page) -> None:
    await say(page, "grow", "blocks")
    growing = page.locator(".bubble.growing")
    await expect(growing.get_by_role("heading", name="Report")).to_be_visible()
    await expect(growing.get_by_role("cell", name="1")).to_be_visible()
    await exchanges(page, 1)
    await expect(page.locator(".bubble.theirs em")).to_have_text("last")
    await expect(page.locator(".bubble.theirs").get_by_role("heading")).to_have_count(1)


async def test_the_work_of_a_team_is_folded_and_tells_who_did_what(page: Page) -> None:
    await say(page, "together", "pair")
    await exchanges(page, 1)
    await expect(page.locator(".bubble.theirs")).to_have_text(["I ask for help", "I helped"])
    work = page.locator(".activity")
    await expect(work).to_contain_text("hand-off")
    await expect(work.locator(".step-name").first).to_be_hidden()
    await work.locator("summary").click()
    await expect(work).to_contain_text("read the plan")
    await expect(work).to_contain_text("lead → mate")
    await expect(work.locator(".handoff-text")).to_have_text("together")
    await expect(work.locator("summary")).to_contain_text("2,400 tokens · $0.0072")
    await expect(work.locator(".step").first).to_contain_text("1,200 tokens · $0.0036")
    await page.reload()
    await expect(page.locator(".bubble.theirs")).to_have_text(["I ask for help", "I helped"])


async def test_the_work_behind_an_older_answer_is_loaded_when_asked_for(page: Page) -> None:
    await say(page, "alone", "mate")
    await exchanges(page, 1)
    await page.reload()
    await exchanges(page, 1)
    await page.get_by_role("button", name="Show the work behind it").click()
    await expect(page.locator(".activity")).to_contain_text("check the plan")


async def test_a_second_message_waits_in_line_and_can_be_stopped(page: Page) -> None:
    await say(page, "first", "slow")
    await expect(page.locator(".steps")).to_contain_text("slow is working")
    await say(page, "second", "slow")
    await expect(page.get_by_role("button", name="Stop")).to_have_count(2)
    await page.get_by_role("button", name="Stop").last.click()
    await expect(page.locator(".exchange").last.locator(".state")).to_contain_text("stopped")
    await expect(page.locator(".exchange").first).to_have_attribute("data-state", "working")
    await page.get_by_role("button", name="Stop").click()
    await exchanges(page, 2, "failed")


async def test_an_answer_is_regenerated_and_the_old_one_stays_as_a_version(
    page: Page, browser: Browser, server: Server
) -> None:
    await say(page, "again please", "counter")
    await exchanges(page, 1)
    first = await page.locator(".bubble.theirs").inner_text()
    await page.get_by_role("button", name="Regenerate").click()
    await expect(page.locator(".bubble.theirs", has_text=first)).to_have_count(0)
    await exchanges(page, 1)
    pager = page.locator(".pager")
    await expect(pager).to_contain_text("2 / 2")
    await page.reload()
    await expect(pager).to_contain_text("2 / 2")
    second = await page.locator(".bubble.theirs").inner_text()
    await page.get_by_role("button", name="Older version").click()
    await expect(pager).to_contain_text("1 / 2")
    await expect(page.locator(".bubble.theirs")).to_have_text(first)
    await expect(page.get_by_role("button", name="Regenerate")).to_have_count(0)
    await page.get_by_role("button", name="Newer version").click()
    await expect(page.locator(".bubble.theirs")).to_have_text(second)
    async with opened(browser, server) as other:
        await other.goto(page.url)
        await expect(other.locator(".bubble.theirs")).to_have_text(second)
        await expect(other.locator(".pager")).to_contain_text("2 / 2")


async def test_lines_that_were_read_before_a_regeneration_do_not_hide_it(page: Page) -> None:
    await say(page, "once more", "counter")
    await exchanges(page, 1)
    conversation = quote(parse_qs(urlsplit(page.url).query)["c"][0], safe="")
    path = f"/api/conversations/{conversation}/messages"
    before = await ask(page, "GET", f"{path}?html=true")
    asked: list[str] = [before[-1]["messageId"]]

    async def note(route: Route) -> None:
        asked.append(json.loads(route.request.post_data or "")["messageId"])
        await route.continue_()

    async def stale(route: Route) -> None:
        await route.fulfill(json=[line | {"versions": asked} for line in before])

    await page.route("**/api/message", note)
    await page.route(f"**{path}?*", stale)
    async with page.expect_response(f"**{path}?*"):
        await page.get_by_role("button", name="Regenerate").click()
    await exchanges(page, 1)
    await expect(page.locator(".exchange")).to_have_attribute("data-message", asked[1])


async def test_a_question_is_edited_by_keyboard_and_asked_again(page: Page) -> None:
    await say(page, "hallo", "")
    await exchanges(page, 1)
    await page.keyboard.press("ArrowUp")
    editor = page.get_by_label("Edited text")
    await expect(editor).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Edit", exact=True)).to_be_focused()
    await page.keyboard.press("Enter")
    await editor.fill("hello")
    await page.keyboard.press("Enter")
    await expect(page.locator(".bubble.theirs")).to_have_text("you said hello")
    await expect(page.locator(".bubble.mine")).to_have_text("hello")
    await expect(page.locator(".pager")).to_contain_text("2 / 2")
    await page.get_by_role("button", name="Older version").click()
    await expect(page.locator(".bubble.mine")).to_have_text("hallo")
    await expect(page.locator(".bubble.theirs")).to_have_text("you said hallo")


@pytest.mark.parametrize(("choice", "result"), [("Send it", "sent"), ("<b>Leave</b> it", "left")])
async def test_a_turn_that_asks_for_approval_shows_a_card_and_goes_on(
    page: Page, choice: str, result: str
) -> None:
    await say(page, "<i>the mail</i>", "clerk")
    card = page.get_by_role("group", name="Approval")
    await expect(card).to_contain_text("Send <i>the mail</i>?")
    await expect(card).to_contain_text("Clerk waits for your answer")
    await page.reload()
    await card.get_by_role("button", name=choice).click()
    await expect(page.locator(".bubble.theirs")).to_have_text(f"decided: {result}")
    await expect(card).to_have_count(0)


async def test_the_place_in_line_is_shown_while_a_message_waits(page: Page) -> None:
    await say(page, "first", "slow")
    await expect(page.locator(".steps")).to_contain_text("slow is working")
    await say(page, "second", "slow")
    await expect(page.locator(".position")).to_contain_text("1 ahead in this conversation")
    for stopped in (1, 2):
        await page.get_by_role("button", name="Stop").first.click()
        await exchanges(page, stopped, "failed")
