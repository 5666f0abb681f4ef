"""Takes a picture of every page: light and dark, desktop and phone. Run by `make screenshots`.

Names of pictures as arguments take only those."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, Page

from tools.browser import chromium
from tools.screenshots.film import film_crash
from tools.screenshots.history import fill
from tools.screenshots.pictures import PICTURES, Picture, of_a_thread
from tools.screenshots.png import write_small
from tools.screenshots.servers import ADDRESS, APP, ROOT, login, run, running, up
from tools.screenshots.talk import age, talk

FOLDER = ROOT / "docs" / "images"
SCREENS = {"desktop": (1200, 760), "phone": (360, 700)}
SCHEMES = ("light", "dark")


@asynccontextmanager
async def screen(browser: Browser, name: str, scheme: str, state: Any) -> AsyncIterator[Page]:
    """Open an empty page of a size and a theme, with the cookies of a login."""
    width, height = SCREENS[name]
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
        storage_state=state,
    )
    yield await context.new_page()
    await context.close()


async def take(browser: Browser, picture: Picture, state: Any = None) -> None:
    """Take a picture on every screen, in both themes."""
    async with asyncio.TaskGroup() as group:
        for name in SCREENS:
            for scheme in SCHEMES:
                group.create_task(_take(browser, picture, name, scheme, state))


async def _take(browser: Browser, picture: Picture, name: str, scheme: str, state: Any) -> None:
    async with screen(browser, name, scheme, state) as page:
        await page.goto(picture.path)
        await page.locator(picture.wait_for).first.wait_for(state="attached")
        await page.wait_for_load_state("load")
        if picture.prepare is not None:
            await picture.prepare(page)
        await page.evaluate("document.activeElement.blur()")
        await page.mouse.move(0, 0)
        await save(page, f"{picture.name}-{name}-{scheme}")


async def save(page: Page, name: str) -> None:
    path = FOLDER / f"{name}.png"
    session = await page.context.new_cdp_session(page)
    # Chromium then uses the two filters that are quick to undo.
    taken = await session.send(
        "Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True}
    )
    await asyncio.to_thread(write_small, b64decode(taken["data"]), path)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB", flush=True)


async def log_in(browser: Browser, link: str) -> Any:
    """Open a login link. Returns the cookies."""
    context = await browser.new_context()
    await (await context.new_page()).goto(link)
    state = await context.storage_state()
    await context.close()
    return state


async def take_app(browser: Browser, home: str, wanted: set[str]) -> None:
    """Take the pictures of the web app, of a server that has worked for a week."""
    await asyncio.to_thread(run, "migrate", "--home", home)
    url = f"sqlite:///{home}/holdfast.db"
    await asyncio.to_thread(fill, url)
    with up(home):
        state = await log_in(browser, login(home, "Ada"))
        async with screen(browser, "desktop", "light", state) as page:
            await page.goto(ADDRESS)
            await talk(page)
    age(f"{home}/holdfast.db")
    with up(home):
        for picture in PICTURES:
            if not wanted or picture.name in wanted:
                there = Picture(
                    picture.name, ADDRESS + picture.path, picture.wait_for, picture.prepare
                )
                await take(browser, there, state)
        if not wanted or "login" in wanted:
            await take(browser, Picture("login", login(home, "Grace"), "main"), state)


async def take_demos(browser: Browser, wanted: set[str]) -> None:
    """Take the pictures of the demonstrations, which are servers of their own."""
    demos = (
        ("demo-slack", ("demo", "slack", "--port", "0", "--app", APP), "#rooms li", of_a_thread),
    )
    for name, command, sign, prepare in demos:
        if not wanted or name in wanted:
            with running(*command) as ready:
                await take(browser, Picture(name, address_in(ready), sign, prepare))
    if not wanted or "demo-crash" in wanted:
        with running("demo", "crash", "--port", "0", "--no-browser") as ready:
            await film_crash(browser, address_in(ready), FOLDER / "demo-crash.png")


def address_in(ready: str) -> str:
    return next(word for word in ready.split() if word.startswith("http"))


async def take_all(home: str, wanted: set[str]) -> None:
    async with chromium() as browser:
        if not wanted or not wanted <= {"demo-slack", "demo-crash"}:
            await take_app(browser, home, wanted)
        await take_demos(browser, wanted)


def main() -> None:
    home = tempfile.mkdtemp(prefix="holdfast-pictures-")
    try:
        asyncio.run(take_all(home, set(sys.argv[1:])))
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
