"""The chat page while workers are killed at every point of an answer: it shows one, whole."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.pages import say
from tests.browser.server import Server
from tests.channels.crashes import without_grace
from tests.crash.streamer import (
    AFTER_EFFECT,
    AFTER_RECORD,
    BEFORE_SETTLE,
    BEFORE_STEP,
    BETWEEN_DELTAS,
    POINTS,
    Effects,
    answer_text,
)
from tests.crash.test_streaming import ENDS_WITHIN, check_effects, worker

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHAOS_RUNS = 3
"""Runs of each point on each engine in `make chaos`."""
AT = (BEFORE_STEP, AFTER_EFFECT, AFTER_RECORD, BETWEEN_DELTAS, BEFORE_SETTLE)
# Keeps every text that the page shows for the answer, over all of its changes.
WATCH = """
window.shown = [];
new MutationObserver(() => {
  const bubbles = document.querySelectorAll(".bubble.theirs");
  const texts = [...bubbles].map((bubble) => bubble.textContent);
  if (texts.length) window.shown.push(texts.join(" | "));
}).observe(document, { subtree: true, childList: true, characterData: true });
"""


@pytest.fixture
def server(tmp_path: Path, database_url: str) -> Iterator[Server]:
    """`holdfast serve` alone: workers come and go as processes of their own."""
    without_grace(database_url)
    with Server(tmp_path, "serve", database=database_url) as server:
        yield server


@asynccontextmanager
async def chat(browser: Browser, server: Server) -> AsyncIterator[Page]:
    context = await browser.new_context()
    await context.add_init_script(WATCH)
    page = await context.new_page()
    await page.goto(server.link)
    yield page
    await context.close()


async def second_tab(page: Page, server: Server) -> Page:
    tab = await page.context.new_page()
    await tab.goto(server.address)
    return tab


async def is_answered(tab: Page) -> None:
    bubble = tab.locator(".bubble.theirs")
    await expect(tab.locator(".exchange")).to_have_attribute("data-state", "answered")
    await expect(bubble).to_have_count(1)
    # A page shows runs of blanks as one, and none at the end.
    whole = " ".join(answer_text().split())
    assert " ".join((await bubble.text_content() or "").split()) == whole
    # A part of two attempts would not be the beginning of the answer.
    shown = [" ".join(text.split()) for text in await tab.evaluate("() => window.shown")]
    assert [text for text in shown if not whole.startswith(text)] == []


async def kill_and_look(
    browser: Browser, server: Server, database_url: str, folder: Path, point: str, nth: int
) -> None:
    """Kill a worker, reload the page, open another and restart the server; then let it go on."""
    async with chat(browser, server) as page, asyncio.timeout(2 * ENDS_WITHIN):
        async with worker(database_url, folder, point, nth) as doomed:
            await say(page, "report")
            await expect(page.locator(".bubble.mine")).to_have_count(1)
            watched = await second_tab(page, server)
            assert await asyncio.to_thread(doomed.wait, ENDS_WITHIN) == -signal.SIGKILL
        await page.reload()
        async with worker(database_url, folder):
            server.end(signal.SIGKILL)
            server.start()
            opened = await second_tab(page, server)
            for tab in (page, watched, opened):
                await is_answered(tab)
    check_effects(Effects(folder / "effects").lines(), point)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("point", AT)
async def test_every_tab_shows_one_whole_answer_after_a_kill(
    browser: Browser, server: Server, database_url: str, tmp_path: Path, point: str
) -> None:
    await kill_and_look(browser, server, database_url, tmp_path, point, POINTS[point])


@pytest.mark.chaos
@pytest.mark.parametrize("run", range(CHAOS_RUNS))
@pytest.mark.parametrize("point", AT)
@pytest.mark.parametrize("engine", ["sqlite", "postgres", "timescale"], indirect=True)
async def test_every_tab_shows_one_whole_answer_after_each_of_many_kills(
    browser: Browser, server: Server, database_url: str, tmp_path: Path, point: str, run: int
) -> None:
    nth = random.randint(1, POINTS[point])
    await kill_and_look(browser, server, database_url, tmp_path, point, nth)
