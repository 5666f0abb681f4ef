"""Memory in the console: who is remembered and what, corrected, removed and forgotten."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from holdfast.memory.observation import Observation
from holdfast.store import open_store
from holdfast.store.memory import open_observations
from tests.browser.operator import Operator, operator
from tests.browser.requests import ask, send
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def remember(
    server: Server, person: str, *contents: str, sources: tuple[str, ...] = ()
) -> None:
    async with open_store(server.database) as store:
        observations = open_observations(store)
        for content in contents:
            await observations.save(
                Observation(
                    workspace_id="default",
                    subject_type="USER",
                    subject_id=f"api:id:{person}",
                    content=content,
                    source_message_ids=sources,
                )
            )


async def open_person(admin: Operator, person: str) -> Page:
    page = await admin.open("/console/memory")
    await page.get_by_role("link", name=person).click()
    await expect(page.get_by_role("heading", name=person)).to_be_visible()
    return page


async def test_lines_are_corrected_and_removed(admin: Operator) -> None:
    await remember(admin.server, "ada", "drinks green tea", "likes <b>bold</b> text")
    page = await open_person(admin, "ada")
    line = page.locator(".observation").filter(has_text="green tea")
    await expect(page.locator(".observation")).to_contain_text(["", ""])
    await line.get_by_role("button", name="Correct").click()
    await page.get_by_role("textbox", name="Text").fill("drinks black tea")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".observations")).to_contain_text("drinks black tea")
    await expect(line).to_have_count(0)
    bold = page.locator(".observation").filter(has_text="likes <b>bold</b> text")
    await bold.get_by_role("button", name="Remove").click()
    await page.get_by_role("button", name="Remove line").click()
    await expect(bold).to_have_count(0)


async def test_a_line_leads_to_the_message_that_it_came_from(admin: Operator) -> None:
    page = await admin.open("/console")
    message_id = await send(page, "I play the <i>harp</i>", "echo", sender="Ines")
    await remember(admin.server, "ines", "plays the harp", sources=(message_id,))
    await open_person(admin, "ines")
    line = page.locator(".observation").filter(has_text="plays the harp")
    await line.locator("summary").filter(has_text="1 source").click()
    source = line.get_by_role("link", name="I play the <i>harp</i>")
    await expect(line.locator(".source")).to_contain_text("Ines on api")
    await source.click()
    await expect(page.locator(".message-text")).to_contain_text("I play the <i>harp</i>")


async def test_a_person_is_forgotten_with_a_report(admin: Operator) -> None:
    await remember(admin.server, "grace", "writes compilers")
    page = await open_person(admin, "grace")
    await page.get_by_role("button", name="Forget… grace").click()
    await page.get_by_label("Name").fill("somebody else")
    await page.get_by_role("button", name="Forget for ever").click()
    await expect(page.get_by_role("alert").filter(visible=True)).to_have_text(
        "That is another name."
    )
    await page.get_by_label("Name").fill("grace")
    await page.get_by_role("button", name="Forget for ever").click()
    report = page.get_by_role("dialog", name="grace is forgotten")
    await expect(report).to_contain_text("observations")
    await report.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("link", name="grace")).to_have_count(0)


async def test_people_are_searched_by_a_part_of_their_id(admin: Operator) -> None:
    await remember(admin.server, "linus", "keeps kernels")
    await remember(admin.server, "mira", "keeps cats")
    page = await admin.open("/console/memory?q=lin")
    await expect(page.get_by_role("link", name="linus")).to_be_visible()
    await expect(page.get_by_role("link", name="mira")).to_have_count(0)


async def test_the_index_is_verified(admin: Operator) -> None:
    page = await admin.open("/console/memory")
    await page.get_by_role("button", name="Verify the index").click()
    report = page.get_by_role("dialog", name="Index and store compared")
    await expect(report).to_contain_text("difference")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Verify the index")).to_be_focused()


async def test_a_reader_is_told_why_nothing_can_be_corrected(
    admin: Operator, browser: Browser
) -> None:
    await remember(admin.server, "zoe", "plays chess")
    async with operator(browser, admin.server, role="read", name="guest") as guest:
        page = await open_person(guest, "zoe")
        correct = page.get_by_role("button", name="Correct")
        await expect(correct).to_have_attribute("aria-disabled", "true")
        await expect(page.get_by_role("note")).to_contain_text("Needs the role admin")
        assert await ask(page, "GET", "/api/memory/status")
