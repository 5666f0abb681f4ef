"""The page of `holdfast demo slack`: a mention is answered in its thread, and nothing that is said is run."""

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
    """Whatever the browser complains of, also of the content security policy, fails the test."""
    page = await browser.new_page(viewport={"width": 1000, "height": 600})
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
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
    await expect(page.locator("li.bot .text")).to_have_text("you said <img src=x onerror=alert(1)> & more")
    await expect(page.locator("#messages img")).to_have_count(0)
