"""The chat page while an answer grows: reload, second tab, restart, stop."""

from __future__ import annotations

import signal

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.pages import say
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

BEGINNING = "Once 😀 there was RAIN"
MIDDLE = f"{BEGINNING}, and it was good"
WHOLE = f"{MIDDLE}."


async def grows_to(page: Page, text: str) -> None:
    bubble = page.locator(".bubble.theirs")
    await expect(bubble).to_have_count(1)
    await expect(bubble).to_have_text(text)


async def is_answered(page: Page) -> None:
    await grows_to(page, WHOLE)
    await expect(page.locator(".exchange")).to_have_attribute("data-state", "answered")
    await expect(page.locator(".bubble.growing")).to_have_count(0)


async def test_text_is_shown_as_it_comes_with_the_progress(page: Page, server: Server) -> None:
    await say(page, "rain", "poet")
    await grows_to(page, BEGINNING)
    await expect(page.locator(".bubble.growing code")).to_have_text("RAIN")
    await expect(page.locator(".doing")).to_have_text("reading 3 of 7 files")
    server.allow("middle")
    await grows_to(page, MIDDLE)
    server.allow("end")
    await is_answered(page)
    await expect(page.locator(".doing")).to_have_count(0)
    await page.reload()
    await is_answered(page)


async def test_a_reload_and_a_second_tab_show_the_text_so_far_and_go_on(
    page: Page, server: Server
) -> None:
    await say(page, "rain", "poet")
    await grows_to(page, BEGINNING)
    await page.reload()
    other = await page.context.new_page()
    await other.goto(server.address)
    for tab in (page, other):
        await grows_to(tab, BEGINNING)
        await expect(tab.locator(".doing")).to_have_text("reading 3 of 7 files")
    server.allow("middle")
    for tab in (page, other):
        await grows_to(tab, MIDDLE)
    server.allow("end")
    for tab in (page, other):
        await is_answered(tab)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_text_goes_on_after_the_server_was_gone_in_the_middle(
    page: Page, server: Server, how: signal.Signals
) -> None:
    await say(page, "rain", "poet")
    await grows_to(page, BEGINNING)
    if how == signal.SIGTERM:
        server.allow("middle")
        server.allow("end")
    server.end(how)
    await expect(page.locator("#line")).to_have_attribute("data-state", "away")
    await expect(page.locator(".bubble.theirs")).to_contain_text(BEGINNING)
    server.allow("middle")
    server.allow("end")
    server.start()
    await is_answered(page)


async def test_a_stopped_answer_keeps_what_was_said_and_says_so(page: Page, server: Server) -> None:
    await say(page, "rain", "poet")
    await grows_to(page, BEGINNING)
    await page.get_by_role("button", name="Stop").click()
    for _ in range(2):
        await expect(page.locator(".state")).to_contain_text("stopped")
        await grows_to(page, BEGINNING)
        await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        await page.reload()
    server.allow("middle")
    server.allow("end")
    await page.get_by_role("button", name="Retry").click()
    await is_answered(page)


@pytest.mark.parametrize(
    ("choice", "answer"),
    [("It did: go on", "paid: None"), ("It did not: call again", "paid: charged")],
)
async def test_a_person_says_whether_a_call_happened_before_it_is_retried(
    page: Page, server: Server, choice: str, answer: str
) -> None:
    await say(page, "pay", "cashier")
    await expect(page.locator(".state")).to_contain_text("charge card")
    await expect(page.get_by_role("button", name=choice)).to_have_count(0)
    await page.get_by_role("button", name="Retry").click()
    server.allow("mended")
    await page.get_by_role("button", name=choice).click()
    await expect(page.locator(".bubble.theirs")).to_have_text(answer)


async def test_a_reader_sees_the_text_and_is_offered_no_stop(
    page: Page, server: Server, browser: Browser
) -> None:
    await say(page, "rain", "poet")
    await grows_to(page, BEGINNING)
    context = await browser.new_context()
    reader = await context.new_page()
    await reader.goto(server.login("--name", "reader", "--role", "read"))
    await reader.get_by_role("link", name="rain").click()
    await grows_to(reader, BEGINNING)
    await expect(reader.get_by_role("button", name="Stop")).to_have_count(0)
    await context.close()
