"""Takes a picture of every page: light and dark, desktop and phone. Run by `make screenshots`."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from playwright.async_api import Browser, Page, async_playwright

from tools.screenshots.operations import fill, operate

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "images"
HOLDFAST = Path(sys.executable).with_name("holdfast")
APP = "tools.screenshots.app:app"
PORT = 3797
ADDRESS = f"http://127.0.0.1:{PORT}"
SCREENS = {"desktop": (1200, 760), "phone": (360, 700)}
SCHEMES = ("light", "dark")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu"]

Prepare = Callable[[Page], Awaitable[None]]


async def nothing(_: Page) -> None:
    """Show a page as it opens."""


async def from_the_beginning(page: Page) -> None:
    await page.locator("#log").evaluate("node => { node.scrollTop = 0; }")


async def with_work_open(page: Page) -> None:
    await page.locator(".activity summary").last.click()


async def with_numbers(page: Page) -> None:
    await page.locator(".worker").first.wait_for()
    await page.locator(".tile").first.wait_for()


async def of_a_hand_off(page: Page) -> None:
    await page.get_by_role("link", name="Please check the plan").first.click()
    await page.locator(".timeline").wait_for()


async def with_dead_letters(page: Page) -> None:
    await page.locator(".group-toggle").first.click()
    await page.locator(".letter").first.wait_for()


async def of_a_person(page: Page) -> None:
    await page.get_by_role("link", name="ada").first.click()
    await page.locator(".observation").first.wait_for()


@dataclass(frozen=True)
class Picture:
    """A picture of a page, after `prepare` has brought it into the state to show."""

    name: str
    path: str
    prepare: Prepare = nothing
    wait_for: str = "#line[data-state=live]"


PICTURES = [
    Picture("chat-new", "/", wait_for=".agent-card"),
    Picture("chat", "/?c=web:ada/plan", from_the_beginning, ".bubble.theirs"),
    Picture("chat-team", "/?c=web:ada/desk", with_work_open, ".activity"),
    Picture("chat-approval", "/?c=web:ada/ship", wait_for=".approval"),
    Picture("console-overview", "/console", with_numbers, ".chart"),
    Picture("console-messages", "/console/messages", wait_for="tr[data-id]"),
    Picture("console-message", "/console/messages", of_a_hand_off, "tr[data-id]"),
    Picture("console-dead", "/console/dead", with_dead_letters, ".group"),
    Picture("console-agents", "/console/agents", wait_for="tr .row-link"),
    Picture("console-memory", "/console/memory", of_a_person, ".person"),
    Picture("console-access", "/console/access", wait_for="tbody tr"),
    Picture("status", "/status", wait_for=".chart"),
]
QUESTIONS = {
    "notes": ("Draft the release notes for 0.8", None),
    "incident": ("Summarise the incident of last night", None),
    "outbox": ("Why is the outbox growing?", None),
    "mail": ("Translate the welcome mail", None),
    "ship": ("Ship 0.8.0, please", "deployer"),
    "desk": ("Please check the plan for the lane column", "desk"),
    "plan": ("How do we migrate the lane column without downtime?", None),
}


def call(path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(ADDRESS + path, data, {"content-type": "application/json"})
    with urlopen(request) as answer:
        return json.load(answer)


def talk() -> None:
    """Begin the conversations that the pictures show, and wait for all answers."""
    for topic, (text, agent) in QUESTIONS.items():
        body = {"message": text, "channel": "web", "sender": "ada", "conversation": topic}
        call("/api/message", body | ({"agent": agent} if agent else {}))
    # The deployer waits for a person, and stays.
    while any(one["agent"] != "deployer" for one in call("/api/queue/agents")):
        pass


@contextmanager
def server(home: str) -> Iterator[None]:
    """Run a server with the agents of the pictures, on loopback and in a folder of its own."""
    command = [str(HOLDFAST), "up", "--app", APP, "--home", home, "--port", str(PORT), "--no-auth"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        while "ready" not in process.stdout.readline():
            pass
        try:
            yield
        finally:
            process.terminate()


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    found = await asyncio.to_thread(subprocess.check_output, [ROOT / "tools" / "chromium"])
    path = found.decode().split()[-1]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()


async def take(browser: Browser, picture: Picture, screen: str, scheme: str) -> None:
    width, height = SCREENS[screen]
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = await context.new_page()
    await page.goto(ADDRESS + picture.path)
    await page.locator(picture.wait_for).first.wait_for(state="attached")
    await page.wait_for_load_state("load")
    await picture.prepare(page)
    await page.evaluate("document.activeElement.blur()")
    path = FOLDER / f"{picture.name}-{screen}-{scheme}.png"
    await page.screenshot(path=path)
    await context.close()
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB")


async def take_all() -> None:
    async with chromium() as browser:
        for picture in PICTURES:
            for screen in SCREENS:
                for scheme in SCHEMES:
                    await take(browser, picture, screen, scheme)


def main() -> None:
    home = tempfile.mkdtemp(prefix="holdfast-pictures-")
    try:
        subprocess.check_call([HOLDFAST, "migrate", "--home", home])
        fill(f"sqlite:///{home}/holdfast.db")
        with server(home):
            talk()
            operate(call)
            asyncio.run(take_all())
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
