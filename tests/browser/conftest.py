"""One Chromium for all tests. Each test has its own browser context."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from holdfast.testing.databases import Databases
from holdfast.testing.fixtures import available
from tests.browser.operator import Operator, operator
from tests.browser.pages import is_live
from tests.browser.server import Server

# Patience for busy machines; speed is measured elsewhere.
expect.set_options(timeout=60_000)

SCRIPT = Path(__file__).parents[2] / "tools" / "chromium"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium. Without one, tests are skipped; in CI they fail."""
    asked = subprocess.run([SCRIPT], capture_output=True, text=True, check=False)
    if asked.returncode == 0:
        return asked.stdout.strip().splitlines()[-1]
    if os.environ.get("CI") == "true":
        pytest.fail(f"no browser: {asked.stderr.strip()}", pytrace=False)
    pytest.skip(f"no browser: {asked.stderr.strip()}")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        await browser.close()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def web_engine(request: pytest.FixtureRequest) -> str:
    """Each engine in turn. All tests of a file run on one before the next."""
    return str(request.param)


@pytest.fixture
def server(web_engine: str, databases: Databases, tmp_path: Path) -> Iterator[Server]:
    """`holdfast up` with the agents of tests/browser/app.py, as a process."""
    with (
        available(web_engine, databases.fresh(web_engine)) as url,
        Server(tmp_path, database=url) as server,
    ):
        yield server


@pytest.fixture(scope="module")
def chat_server(
    web_engine: str, databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """`holdfast up` with the agents of tests/browser/chat_app.py, one for all tests of a file."""
    folder = tmp_path_factory.mktemp("chat")
    with (
        available(web_engine, databases.fresh(web_engine)) as url,
        Server(folder, "up", "--app", "tests.browser.chat_app:app", database=url) as server,
    ):
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, server: Server) -> AsyncIterator[Page]:
    """The chat page, logged in. Errors in the browser fail the test."""
    context = await browser.new_context(viewport={"width": 1000, "height": 700})
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto(server.link)
    await is_live(page)  # before, nothing listens to keys
    yield page
    assert complaints == []
    await context.close()


@pytest.fixture(scope="module")
def shared_server(
    web_engine: str, databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """`holdfast up` on each engine, one for all tests of a file."""
    folder = tmp_path_factory.mktemp("server")
    with (
        available(web_engine, databases.fresh(web_engine)) as url,
        Server(folder, database=url) as server,
    ):
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def admin(browser: Browser, shared_server: Server) -> AsyncIterator[Operator]:
    """A logged-in admin at the shared server."""
    async with operator(browser, shared_server) as found:
        yield found
