"""Every page of the console in both themes, on a desktop and on a phone: names, contrast, width."""

from __future__ import annotations

from typing import Literal

import pytest
from playwright.async_api import Browser, expect

from tests.browser.accessibility import poor_contrasts, sideways_overflow, unnamed_controls
from tests.browser.operator import DESKTOP, PHONE, operator
from tests.browser.requests import ask, send
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGES = {
    "/console": ".tile",
    "/console/messages": "tr[data-id]",
    "/console/dead": ".group",
    "/console/agents": "tr .row-link",
    "/console/agents/broken": "svg.chart-picture",
    "/console/teams/pair": ".room-composer",
    "/console/memory": ".minis",
    "/console/access?tab=tokens": ".card",
    "/console/access?tab=sessions": "tbody tr",
    "/console/access?tab=pairing": ".card",
    "/console/access?tab=schedules": ".card",
    "/console/access?tab=audit": "tbody tr",
    "/status": ".figure",
    "/docs": "section",
    "/login": "main",
}
# The page and the button that opens a dialog, and its name.
DIALOGS = {
    "New token": "/console/access?tab=tokens",
    "New schedule": "/console/access?tab=schedules",
    "Pause the agent echo": "/console/agents",
    "Verify the index": "/console/memory",
    "Account": "/console",
}
LONG = "a-very-long-word-without-any-break-" * 8


@pytest.mark.sweep(3)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", ["desktop", "phone"])
async def test_every_page_has_names_contrast_and_fits(
    browser: Browser, shared_server: Server, theme: Literal["light", "dark"], width: str
) -> None:
    viewport = DESKTOP if width == "desktop" else PHONE
    async with operator(browser, shared_server, viewport=viewport, color_scheme=theme) as admin:
        page = await admin.open("/console/access?tab=schedules")
        await send(page, f"{LONG} dead", "broken", sender=LONG[:150])
        message_id = await send(page, f"{LONG} done", "echo", sender=LONG[:150])
        event_id = (await ask(page, "GET", f"/api/message/{message_id}"))["eventId"]
        pages = PAGES | {f"/console/messages/{event_id}": ".timeline"}
        for path, sign in pages.items():
            await admin.open(path)
            await expect(page.locator(sign).first).to_be_visible()
            assert await poor_contrasts(page) == [], path
            assert await unnamed_controls(page) == [], path
            assert await sideways_overflow(page) <= 0, path


async def test_focus_goes_to_the_title_of_a_page_and_keys_lead_through_it(
    browser: Browser, shared_server: Server
) -> None:
    async with operator(browser, shared_server) as admin:
        page = await admin.open("/console")
        await send(page, "nobody can", "broken")
        await expect(page.locator(".tile").first).to_be_visible()
        title = page.get_by_role("heading", level=1)
        await expect(title).to_be_focused()
        await page.keyboard.press("g")
        await page.keyboard.press("d")
        await expect(title).to_have_text("Dead letters")
        await expect(title).to_be_focused()
        await page.get_by_role("link", name="Skip to the page").focus()
        await page.keyboard.press("Enter")
        await expect(title).to_be_focused()
        await page.keyboard.press("j")
        await expect(page.locator(".group-toggle").first).to_be_focused()
        await page.keyboard.press("/")
        await expect(page.get_by_label("Cause")).to_be_focused()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Escape")
        await title.focus()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(title).to_be_focused()


async def test_nothing_moves_for_those_who_asked_for_it(
    browser: Browser, shared_server: Server
) -> None:
    async with operator(browser, shared_server, reduced_motion="reduce") as admin:
        page = await admin.open("/console")
        await expect(page.locator(".tile").first).to_be_visible()
        running = (
            "() => document.getAnimations().filter((one) => one.playState === 'running').length"
        )
        assert await page.evaluate(running) == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_dialogs_have_names_contrast_and_give_the_focus_back(
    browser: Browser, shared_server: Server, theme: Literal["light", "dark"]
) -> None:
    async with operator(browser, shared_server, color_scheme=theme) as admin:
        for name, path in DIALOGS.items():
            page = await admin.open(path)
            opener = page.get_by_role("button", name=name)
            await opener.click()
            dialog = page.get_by_role("dialog")
            await expect(dialog).to_be_visible()
            assert await dialog.evaluate("node => node.contains(document.activeElement)"), name
            assert await poor_contrasts(page) == [], name
            assert await unnamed_controls(page) == [], name
            await page.keyboard.press("Escape")
            await expect(dialog).to_have_count(0)
            await expect(opener).to_be_focused()


async def test_news_is_told_to_those_who_cannot_see_it(
    browser: Browser, shared_server: Server
) -> None:
    async with operator(browser, shared_server) as admin:
        page = await admin.open("/console/teams/pair")
        log = page.get_by_role("log", name="Lines of the room")
        await page.get_by_label("Line for the room").fill("hello, room")
        await page.keyboard.press("Enter")
        await expect(log).to_have_attribute("aria-live", "polite")
        await expect(log).to_contain_text("hello, room")
        await admin.open("/console/access?tab=schedules")
        await expect(page.locator("#line")).to_have_role("status")
        await admin.open("/status")
        await expect(page.locator("#headline")).to_have_role("status")
        await admin.open("/console/agents")
        await page.get_by_role("button", name="Pause the agent slow").click()
        await page.get_by_role("button", name="Pause", exact=True).click()
        toast = page.get_by_role("status").filter(has_text="is paused, in all processes")
        await expect(toast).to_be_visible()
        await page.get_by_role("button", name="Resume the agent slow").click()
        await expect(page.get_by_role("button", name="Pause the agent slow")).to_be_visible()
