"""The list of conversations: search, rename, pin, archive, delete, export, unread, two browsers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.browser.pages import exchanges, opened, say
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="module")
def server(chat_server: Server) -> Server:
    """One server for the tests of this file: each uses titles of its own."""
    return chat_server


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, server: Server) -> AsyncIterator[Page]:
    async with opened(browser, server) as page:
        yield page


async def begin(page: Page, *texts: str) -> None:
    """Begin a conversation with each text."""
    for text in texts:
        await page.get_by_role("button", name="New chat").click()
        await say(page, text)
        await exchanges(page, 1)
        await expect(entry(page, text)).to_have_count(1)


def entry(page: Page, title: str) -> Locator:
    return page.locator(".group li", has=page.get_by_role("link", name=title, exact=True))


async def choose(page: Page, title: str, action: str) -> None:
    """Choose an action in the menu of a conversation, by keyboard."""
    await page.get_by_role("link", name=title, exact=True).focus()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    item = page.get_by_role("menuitem", name=action, exact=True)
    await item.focus()
    await page.keyboard.press("Enter")


async def test_a_conversation_is_renamed_in_place_and_everywhere(
    page: Page, browser: Browser, server: Server
) -> None:
    await begin(page, "rename me")
    async with opened(browser, server, "--name", "other") as other:
        await choose(page, "rename me", "Rename")
        await expect(page.get_by_label("Title")).to_be_focused()
        await page.keyboard.type("A better name")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("link", name="A better name")).to_be_focused()
        await expect(page.get_by_role("heading", level=1)).to_have_text("A better name")
        await expect(other.get_by_role("link", name="A better name")).to_be_visible()
    await choose(page, "A better name", "Rename")
    await page.keyboard.type("no")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("link", name="A better name")).to_be_focused()
    await page.get_by_role("heading", level=1).get_by_role("button").click()
    await page.get_by_label("Title").fill("Renamed at the top")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="Renamed at the top")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Renamed at the top")


async def test_a_pinned_conversation_stays_on_top(page: Page) -> None:
    await begin(page, "pin me", "later one")
    await choose(page, "pin me", "Pin")
    pinned = page.locator(".group", has=page.get_by_role("heading", name="Pinned"))
    await expect(pinned.locator("a .name")).to_have_text(["pin me"])
    await page.reload()
    await expect(pinned.locator("a .name")).to_have_text(["pin me"])
    await choose(page, "pin me", "Unpin")
    await expect(pinned).to_have_count(0)


async def test_an_archived_conversation_leaves_the_list_until_undone_or_taken_back(
    page: Page,
) -> None:
    await begin(page, "archive me", "stay here")
    await choose(page, "archive me", "Archive")
    await expect(entry(page, "archive me")).to_have_count(0)
    await page.get_by_role("button", name="Undo").click()
    await expect(entry(page, "archive me")).to_have_count(1)
    await choose(page, "archive me", "Archive")
    await expect(entry(page, "archive me")).to_have_count(0)
    await page.get_by_role("button", name="Archived", exact=True).click()
    await expect(entry(page, "archive me")).to_have_count(1)
    await expect(entry(page, "stay here")).to_have_count(0)
    await choose(page, "archive me", "Unarchive")
    await expect(entry(page, "archive me")).to_have_count(0)
    await page.get_by_role("button", name="Archived", exact=True).click()
    await expect(entry(page, "archive me")).to_have_count(1)


async def test_a_conversation_is_deleted_after_a_question_and_for_everybody(
    page: Page, browser: Browser, server: Server
) -> None:
    await begin(page, "delete me")
    address = page.url
    async with opened(browser, server, "--name", "other") as other:
        await other.goto(address)
        await expect(other.locator(".bubble.mine")).to_have_text("delete me")
        await choose(page, "delete me", "Delete")
        dialog = page.get_by_role("dialog", name="Delete this conversation?")
        await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(entry(page, "delete me")).to_have_count(1)
        await choose(page, "delete me", "Delete")
        await dialog.get_by_role("button", name="Delete").click()
        for tab in (page, other):
            await expect(entry(tab, "delete me")).to_have_count(0)
            await expect(tab.locator(".bubble")).to_have_count(0)
    name = json.loads(await page.evaluate("JSON.stringify(new URL(location).search)"))
    assert name == "", "a new conversation is open"


async def test_search_finds_words_in_all_conversations_and_opens_the_line(page: Page) -> None:
    await begin(page, "about albatrosses", "about barnacles")
    await say(page, "the keel needs paint")
    await exchanges(page, 2)
    await page.get_by_role("button", name="New chat").click()
    await page.keyboard.press("Control+K")
    await expect(page.get_by_label("Search conversations")).to_be_focused()
    await page.keyboard.type("KEEL paint")
    snippet = page.locator(".found .snippet").first
    await expect(snippet).to_contain_text("the keel needs paint")
    await expect(snippet.locator("mark")).to_have_text(["keel", "paint"])
    await expect(page.locator(".found .name")).to_have_text(["about barnacles"])
    await snippet.click()
    await expect(page.locator(".revealed")).to_contain_text("the keel needs paint")
    await page.get_by_label("Search conversations").fill("nowhere to be found")
    await expect(page.locator("#conversations")).to_contain_text("Nothing found")
    await page.keyboard.press("Escape")
    await expect(entry(page, "about albatrosses")).to_have_count(1)


@pytest.mark.parametrize(("action", "wanted"), [("Markdown", "you said"), ("JSON", '"role"')])
async def test_a_conversation_is_exported(page: Page, action: str, wanted: str) -> None:
    title = f"export as {action}"
    await begin(page, title)
    await page.get_by_role("button", name="Conversation actions").click()
    async with page.expect_download() as download:
        await page.get_by_role("menuitem", name=f"Export as {action}").click()
    text = (await (await download.value).path()).read_text()
    assert wanted in text
    assert title in text


async def test_answers_that_nobody_saw_are_marked_as_unread(page: Page) -> None:
    await begin(page, "another topic", "unread topic")
    await say(page, "and then?", "blocks")
    await expect(page.locator(".exchange")).to_have_count(2)
    await page.get_by_role("link", name="another topic", exact=True).click()
    row = page.locator(".group li", has_text="unread topic")
    await expect(row.locator(".unread")).to_have_text("1 unread")
    await row.get_by_role("link").click()
    await expect(page.locator(".day.new")).to_have_count(1)
    await expect(row.locator(".unread")).to_have_count(0)
    await page.get_by_role("link", name="another topic", exact=True).click()
    await page.reload()
    await expect(page.get_by_role("link", name="unread topic", exact=True)).to_be_visible()
    await expect(row.locator(".unread")).to_have_count(0)


async def test_a_reader_changes_nothing(page: Page, browser: Browser, server: Server) -> None:
    await begin(page, "read only topic")
    async with opened(browser, server, "--role", "read") as reader:
        await reader.get_by_role("link", name="read only topic").click()
        await expect(reader.locator(".bubble.theirs")).to_have_count(1)
        await expect(reader.get_by_role("button", name="New chat")).to_have_count(0)
        await expect(reader.get_by_role("button", name="Regenerate")).to_have_count(0)
        await expect(reader.locator("#notice")).to_contain_text("may only look")
        await reader.get_by_role("button", name="Conversation actions").click()
        await expect(reader.get_by_role("menuitem")).to_have_text(
            ["Export as Markdown", "Export as JSON"]
        )


async def test_a_hostile_title_and_id_stay_text(page: Page, server: Server) -> None:
    evil = "<img src=x onerror='window.owned = 1'>\"'`&"
    topic = '<b id="x">"]'
    await page.evaluate(
        """async ([message, conversation]) => fetch("/api/message", {
          method: "POST", headers: { "content-type": "application/json" },
          body: JSON.stringify({ message, conversation, channel: "web", sender: "web",
            senderId: "evil" }),
        })""",
        [evil, topic],
    )
    link = page.locator("a.conversation", has_text="<img src=x")
    await link.click()
    await expect(page.locator(".bubble.mine")).to_have_text(evil)
    await exchanges(page, 1)
    await page.goto(f"{server.address}/?c={quote(f'web:evil/{topic}', safe='')}")
    await expect(page.locator(".bubble.mine")).to_have_text(evil)
    await link.focus()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.keyboard.press("Escape")
    await expect(page.locator("#conversations img, #column img, #x")).to_have_count(0)
    assert await page.evaluate("window.owned") is None
