"""The page of `holdfast demo slack`: mentions are answered in threads, and no message runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.cli.shell import Shell

expect.set_options(timeout=30_000)
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
    await page.get_by_role("button", name="reply in thread").click()
    await page.get_by_label("Message").fill("@holdfast more")
    await page.keyboard.press("Enter")
    await expect(page.locator("li.bot.reply")).to_have_count(2)


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
