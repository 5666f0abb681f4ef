"""Measure the first load of pages in Chromium: time to interactive, and bytes transferred."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from statistics import median

from playwright.async_api import Browser, Page

from bench.engine import Engine
from bench.process import run_process
from bench.row import Goal, Row, compare_to_goal
from bench.scale import Scale
from tools.browser import chromium

MOST_BYTES = 150_000.0
MOST_MILLISECONDS = 2_000.0
PAGES = {
    "the chat": ("/", "#line[data-state=live]"),
    "the overview": ("/console", ".tile"),
    "the list of messages": ("/console/messages", "tr[data-id]"),
    "the status page": ("/status", ".figure"),
}
"""The path of a page, and the element that shows that it has its data."""

# Keeps the end of the last task that held the page up for over 50 ms.
LONG_TASKS = """
window.lastLongTask = 0;
new PerformanceObserver((list) => {
  for (const { startTime, duration } of list.getEntries()) {
    window.lastLongTask = Math.max(window.lastLongTask, startTime + duration);
  }
}).observe({ type: "longtask", buffered: true });
"""
# Milliseconds from the navigation until the page has its data and answers to input at once.
INTERACTIVE = """(sign) => new Promise((resolve) => {
  const look = () => {
    if (document.querySelector(sign)) {
      const seenAt = performance.now();
      setTimeout(() => resolve(Math.max(seenAt, window.lastLongTask)), 100);
    } else {
      requestAnimationFrame(look);
    }
  };
  look();
})"""


@dataclass(frozen=True, slots=True)
class Load:
    """The first load of a page by a browser that has kept nothing."""

    milliseconds: float
    transferred: int


async def page_loads(engine: Engine, scale: Scale, url: str) -> AsyncIterator[Row]:
    """Measure each page of a server on the database at `url`."""
    with run_process("serve", url, "--port", "0", "--no-auth") as server:
        async with chromium() as browser:
            await _load(browser, server.address + "/", PAGES["the chat"][1])  # warm the server
            for name, (path, sign) in PAGES.items():
                loads = [
                    await _load(browser, server.address + path, sign) for _ in range(scale.rounds)
                ]
                for row in _rows(engine, f"{name}, {scale.history:,} in history", loads):
                    yield row


def _rows(engine: Engine, name: str, loads: list[Load]) -> list[Row]:
    measured: list[tuple[str, float, float, str]] = [
        ("time to interactive", MOST_MILLISECONDS, median(one.milliseconds for one in loads), "ms"),
        ("first load", MOST_BYTES, float(max(one.transferred for one in loads)), "bytes"),
    ]
    return [
        compare_to_goal(Goal(most, at_most=True), engine.name, f"{what} of {name}", value, unit)
        for what, most, value, unit in measured
    ]


async def _load(browser: Browser, address: str, sign: str) -> Load:
    context = await browser.new_context(viewport={"width": 1200, "height": 800})
    await context.add_init_script(LONG_TASKS)
    page = await context.new_page()
    transferred = await _count_bytes(page)
    await page.goto(address, wait_until="commit")
    milliseconds: float = await page.evaluate(INTERACTIVE, sign)
    await page.wait_for_load_state("load")
    await context.close()
    return Load(milliseconds, transferred())


async def _count_bytes(page: Page) -> Callable[[], int]:
    """Count bytes as they come over the wire, with headers. Returns the count so far."""
    client = await page.context.new_cdp_session(page)
    await client.send("Network.enable")
    sizes: list[int] = []
    client.on("Network.loadingFinished", lambda one: sizes.append(int(one["encodedDataLength"])))
    return lambda: sum(sizes)
