"""A browser of an operator: a context that is logged in, and fails the test on any complaint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, Page, Request, ViewportSize

from tests.browser.server import Server

DESKTOP = ViewportSize(width=1200, height=800)
PHONE = ViewportSize(width=360, height=740)


class Operator:
    """One person at one browser."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page = page
        self.server = server
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", self._note_foreign)

    async def open(self, path: str) -> Page:
        await self.page.goto(self.server.address + path)
        return self.page

    def _note_foreign(self, request: Request) -> None:
        if not request.url.startswith((self.server.address, "data:", "blob:")):
            self.foreign.append(request.url)


@asynccontextmanager
async def operator(
    browser: Browser,
    server: Server,
    *,
    role: str = "admin",
    name: str = "tester",
    viewport: ViewportSize = DESKTOP,
    **options: Any,
) -> AsyncIterator[Operator]:
    """Log a person in. Errors in the page and requests to other hosts fail the test."""
    state = server.sessions.get((role, name))
    context = await browser.new_context(viewport=viewport, storage_state=state, **options)
    found = Operator(await context.new_page(), server)
    if state is None:
        await found.page.goto(server.login("--role", role, "--name", name))
        server.sessions[role, name] = await context.storage_state()
    yield found
    assert found.complaints == []
    assert found.foreign == []
    await context.close()
