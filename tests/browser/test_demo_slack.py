"""The page of `holdfast demo slack`: mentions are answered in threads, and no message runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.page import with_page
from tests.cli.shell import Shell

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with Shell(tmp_path).running("demo", "slack", "--port", "0") as demo:
        yield demo.ready.split()[-1]


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, address: str) -> AsyncIterator[Page]:
    """The page. Errors in the browser, also of the content security policy, fail the test."""
    page = await browser.new_page(viewport={"width": 1000, "height": 600})
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    await page.goto(address)
    yield page
    assert [complaint for complaint in complaints if "favicon" not in complaint] == []
    await page.close()


async def test_a_mention_is_answered_in_its_thread(page: Page) -> None:
    await expect(page.get_by_label("Message")).to_have_value("@holdfast ")
    await page.get_by_label("Message").fill("@holdfast hello **you**")
    await page.keyboard.press("Enter")
    await expect(page.locator("li.bot.reply .text")).to_have_text("you said hello you")
    await expect(page.locator("li.bot.reply strong")).to_have_text("you")
    await expect(page.get_by_label("Message")).to_be_focused()
    await page.get_by_role("button", name="Close the thread").click()
    await expect(page.locator("li.bot.reply")).to_have_count(0)
    await page.get_by_role("button", name="1 reply").click()
    await expect(page.get_by_label("Reply", exact=True)).to_be_focused()
    await page.keyboard.type("@holdfast more")
    await page.keyboard.press("Enter")
    await expect(page.locator("li.bot.reply")).to_have_count(2)
    await expect(page.get_by_role("button", name="replies")).to_have_text("3 replies")


async def test_a_direct_message_is_answered_and_markup_stays_text(page: Page) -> None:
    await page.get_by_role("button", name="holdfast").click()
    await page.get_by_label("Message").fill("<img src=x onerror=alert(1)> & more")
    await page.keyboard.press("Enter")
    await expect(page.locator("li.bot .text")).to_have_text(
        "you said <img src=x onerror=alert(1)> & more"
    )
    await expect(page.locator("#messages img")).to_have_count(0)


# Finds the text with the least contrast by the formula of WCAG, including translucent colours.
CONTRAST = """() => {
  const read = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = (top, below) =>
    below.map((value, n) => n < 3 ? top[n] * top[3] + value * (1 - top[3]) : 1);
  const ground = (node) => {
    if (!node) return read(getComputedStyle(document.documentElement).backgroundColor);
    const own = read(getComputedStyle(node).backgroundColor);
    return own[3] === 1 ? own : over(own, ground(node.parentElement));
  };
  const opacity = (node) =>
    node ? Number(getComputedStyle(node).opacity) * opacity(node.parentElement) : 1;
  const linear = (value) =>
    value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = (color) => {
    const [r, g, b] = color.map((value) => linear(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const isText = (node) => node.nodeType === 3 && node.data.trim();
  const visible = [...document.querySelectorAll("body *")].filter((node) =>
    [...node.childNodes].some(isText) && node.getClientRects().length);
  return visible.map((node) => {
    const below = ground(node);
    const [red, green, blue, alpha] = read(getComputedStyle(node).color);
    const a = light(over([red, green, blue, alpha * opacity(node)], below));
    const b = light(below);
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), `${node.tagName}.${node.className}`];
  }).sort((one, other) => one[0] - other[0])[0];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_has_enough_contrast(page: Page, scheme: str) -> None:
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await page.get_by_label("Message").fill("@holdfast hello `code`")
    await page.keyboard.press("Enter")
    await expect(page.locator("li.bot.reply .text")).to_have_count(1)
    await page.locator("output").evaluate("node => { node.textContent = 'something went wrong'; }")
    least, where = await page.evaluate(CONTRAST)
    assert least >= 4.5, (least, where)


async def test_the_direction_of_a_text_follows_its_content(page: Page) -> None:
    await page.get_by_label("Message").fill("@holdfast שלום")
    await expect(page.get_by_label("Message")).to_have_attribute("dir", "auto")
    await page.keyboard.press("Enter")
    await expect(page.locator("li.bot.reply .text")).to_have_attribute("dir", "auto")


@pytest_asyncio.fixture(loop_scope="session")
async def quiet(browser: Browser) -> AsyncIterator[tuple[FakeSlack, Page]]:
    """The page of a local Slack without an app: the test writes for the bot."""
    async with with_page(FakeSlack()) as slack:
        page = await browser.new_page()
        await page.goto(f"http://127.0.0.1:{slack.port}/")
        yield slack, page
        await page.close()


async def test_mrkdwn_looks_as_in_slack_and_agents_have_names_and_avatars(
    quiet: tuple[FakeSlack, Page],
) -> None:
    slack, page = quiet
    text = (
        "*bold* _italic_ ~gone~ `co*d*e` a*b*c <https://example.org|a link> <@U0ADA> :tada:\n"
        "&gt; quoted\n• one\n• two\n```\nx = 1\n```\n<javascript:alert(1)|bad>"
    )
    room = slack.workspace.rooms["C0GENERAL"]
    slack.workspace.post_as_bot(room, text, username="Poet", icons={"emoji": ":memo:"})
    line = page.locator("#messages li.bot")
    await expect(line.locator(".who")).to_have_text("Poet")
    await expect(line.locator(".avatar")).to_have_text("📝")
    await expect(line.locator("strong")).to_have_text("bold")
    await expect(line.locator("em")).to_have_text("italic")
    await expect(line.locator("s")).to_have_text("gone")
    await expect(line.locator("code")).to_have_text("co*d*e")
    await expect(line.locator(".mention")).to_have_text("@ada")
    await expect(line.locator("blockquote")).to_have_text("quoted")
    await expect(line.locator(".text li")).to_have_text(["one", "two"])
    await expect(line.locator("pre")).to_have_text("x = 1")
    await expect(line.get_by_role("link")).to_have_text(["a link"])
    await expect(line).to_contain_text("a*b*c")
    await expect(line).to_contain_text("🎉")


async def test_edits_are_shown_as_they_come_and_buttons_tell_the_app(
    quiet: tuple[FakeSlack, Page],
) -> None:
    slack, page = quiet
    room = slack.workspace.rooms["C0GENERAL"]
    message = slack.workspace.post_as_bot(room, "Once")
    line = page.locator("#messages li.bot")
    await expect(line.locator(".text")).to_have_text("Once")
    message |= {"text": "Once upon a time", "edited": {"ts": slack.workspace.stamp()}}
    await expect(line.locator(".writing .text")).to_have_text("Once upon a time")
    await expect(line.locator(".edited")).to_have_text("(edited)")
    button = {"type": "button", "action_id": "go", "text": {"type": "plain_text", "text": "Go"}}
    message["blocks"] = [{"type": "actions", "elements": [button]}]
    async with connected(slack):
        async with page.expect_response("**/chat/press") as pressed:
            await page.get_by_role("button", name="Go").click()
        assert (await pressed.value).ok
    assert slack.sockets.interactions[0]["actions"][0]["action_id"] == "go"


@asynccontextmanager
async def connected(slack: FakeSlack) -> AsyncIterator[None]:
    """Connect as an app that only listens."""
    url = f"http://127.0.0.1:{slack.port}/link"
    async with aiohttp.ClientSession() as session, session.ws_connect(url):
        yield
