"""Films `holdfast demo crash`: an answer, a kill, and the next worker that goes on."""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from playwright.async_api import Browser, CDPSession, Page

from tools.screenshots.animation import Frame, write_animation

SIZE = (900, 560)
EVERY = 0.25
"""Seconds between two looks at the page; the animation shows what changed in real time."""
LONGEST = 1.5
"""Seconds after which the animation goes on, although nothing changed."""
LAST = 4.0
KILL_AT, END_AT = "Wind: The stations", "Lights: All lights burn."


async def film_crash(browser: Browser, address: str, path: Path) -> None:
    """Play the demonstration and write it as an animation."""
    width, height = SIZE
    page = await browser.new_page(viewport={"width": width, "height": height})
    await page.goto(address)
    session = await page.context.new_cdp_session(page)
    taken = [shot async for shot in _take(page, session)]
    await page.close()
    frames = list(_frames(taken))
    await asyncio.to_thread(write_animation, frames, path)
    print(f"{path.name}: {len(frames)} frames", flush=True)


async def _take(page: Page, session: CDPSession) -> AsyncIterator[tuple[float, bytes]]:
    """Yield pictures while the worker is asked, killed and followed by another."""
    buttons = ["Kill the worker", "Ask for the report"]
    while True:
        options = {"format": "png", "optimizeForSpeed": True}
        shot = await session.send("Page.captureScreenshot", options)
        yield time.monotonic(), b64decode(shot["data"])
        text = await page.locator("#answer").inner_text()
        if END_AT in text:
            return
        if len(buttons) == 2 or (buttons and KILL_AT in text):
            await page.get_by_role("button", name=buttons.pop()).click()
        await asyncio.sleep(EVERY)


def _frames(taken: list[tuple[float, bytes]]) -> Iterator[Frame]:
    """Join equal pictures, and shorten long waits."""
    begun_at, shown = taken[0]
    for at, png in taken[1:]:
        if png != shown:
            yield Frame(shown, min(at - begun_at, LONGEST))
            begun_at, shown = at, png
    yield Frame(shown, LAST)
