"""Dead letters in the console: retried, discarded and noted, with ten seconds to take it back."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.browser.operator import Operator, operator
from tests.browser.requests import ask, eventually, send
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

FIRE = "the printer is on fire"
UNDO_ENDS = 11_000


async def read_dead(page: Page) -> list[Any]:
    found: list[Any] = await ask(page, "GET", "/api/queue/dead?limit=100")
    return found


async def until_dead(page: Page, number: int) -> None:
    async def are_there() -> bool:
        return len(await read_dead(page)) == number

    await eventually(are_there)


async def open_with(admin: Operator, *texts: str, agent: str = "broken") -> Page:
    """Open the page with exactly these dead letters."""
    admin.server.forbid("mended")
    page = await admin.open("/console/access?tab=schedules")
    await ask(page, "POST", "/api/dead/groups/discard", {"all": True})
    for text in texts:
        await send(page, text, agent)
    await until_dead(page, len(texts))
    await page.clock.install()
    return await admin.open("/console/dead")


def group(page: Page, cause: str = FIRE) -> Locator:
    return page.locator(".group").filter(has_text=cause)


def action(part: Locator, verb: str) -> Locator:
    return part.locator(f'[data-verb="{verb.lower()}"]')


async def test_a_group_is_retried_after_ten_seconds_unless_it_is_undone(admin: Operator) -> None:
    page = await open_with(admin, "one", "two", "three")
    await expect(group(page).locator(".group-count")).to_have_text("3")
    before = await read_dead(page)
    await action(group(page), "Retry").click()
    await page.get_by_role("button", name="Retry 3 dead letters").click()
    await expect(group(page)).to_have_class("card group pending")
    await page.get_by_role("button", name="Undo").click()
    await expect(group(page)).to_have_class("card group")
    await page.clock.fast_forward(UNDO_ENDS)
    await expect(page.locator(".toast")).to_have_count(0)
    assert await read_dead(page) == before, "none of them was tried"
    admin.server.allow("mended")
    await action(group(page), "Retry").click()
    await page.get_by_role("button", name="Retry 3 dead letters").click()
    await page.clock.fast_forward(UNDO_ENDS)
    await expect(page.locator(".toast")).to_have_text("3 dead letters retried.")
    await expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()


async def test_a_retry_that_fails_again_comes_back_and_says_so(admin: Operator) -> None:
    page = await open_with(admin, "once more")
    await action(group(page), "Retry").click()
    await page.get_by_role("button", name="Retry 1 dead letter").click()
    await page.clock.fast_forward(UNDO_ENDS)
    await expect(group(page)).to_contain_text("failed again since your retry")


async def test_two_operators_on_one_letter_do_it_once_and_are_told(
    admin: Operator, browser: Browser
) -> None:
    page = await open_with(admin, "for two")
    async with operator(browser, admin.server, name="second") as second:
        await second.page.clock.install()
        other = await second.open("/console/dead")
        for one, verb in ((page, "Retry"), (other, "Discard")):
            await one.locator(".group-toggle").click()
            await action(one.locator(".letter"), verb).click()
        await other.clock.fast_forward(UNDO_ENDS)
        await expect(other.locator(".toast")).to_have_text("1 dead letter discarded.")
        await page.clock.fast_forward(UNDO_ENDS)
        await expect(page.locator(".toast")).to_contain_text("Somebody else has taken care")
        await expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()


async def test_leaving_the_page_is_no_undo(admin: Operator) -> None:
    page = await open_with(admin, "gone")
    await action(group(page), "Discard").click()
    await page.get_by_role("button", name="Discard 1 dead letter").click()
    await expect(page.get_by_role("button", name="Undo")).to_be_visible()
    assert len(await read_dead(page)) == 1
    await page.goto(f"{admin.server.address}/console/access?tab=schedules")
    await until_dead(page, 0)


async def test_all_that_match_are_discarded_and_the_filter_is_in_the_address(
    admin: Operator,
) -> None:
    page = await open_with(admin, "a", "b")
    await send(page, "c", "hostile")
    await expect(page.locator(".group")).to_have_count(2)
    await page.get_by_label("Cause").fill("PRINTER")
    await expect(page.locator(".group")).to_have_count(1)
    assert "text=PRINTER" in page.url
    await page.get_by_role("button", name="Discard all").click()
    await page.get_by_role("button", name="Discard 2 dead letters").click()
    await page.clock.fast_forward(UNDO_ENDS)
    await expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    await page.get_by_role("button", name="Clear filters").click()
    await expect(page.locator(".group")).to_have_count(1)


async def test_hostile_texts_stay_texts(admin: Operator) -> None:
    text = '"><svg onload=alert(1)>'
    page = await open_with(admin, text, agent="hostile")
    await page.locator(".group-toggle").click()
    letter = page.locator(".letter")
    await expect(letter).to_contain_text(text)
    await expect(letter).to_contain_text("<script>alert(1)</script>")
    assert await page.locator("#page-body img, #page-body script").count() == 0


async def test_issue_14_24_the_page_shows_the_traceback(admin: Operator) -> None:
    page = await open_with(admin, "raise")
    await action(group(page), "toggle").click()
    trace = group(page).locator("details.trace")
    await trace.get_by_text("Traceback", exact=True).click()
    await expect(trace.locator("pre")).to_contain_text(f"RuntimeError: {FIRE}")


async def test_a_note_is_seen_by_everybody(admin: Operator, browser: Browser) -> None:
    page = await open_with(admin, "noted")
    await group(page).get_by_role("button", name="Note").click()
    await page.get_by_label("Note", exact=True).fill("Ada looks at it <b>now</b>")
    await page.get_by_role("button", name="Save note").click()
    await expect(group(page)).to_contain_text("Ada looks at it <b>now</b>")
    async with operator(browser, admin.server, role="read", name="guest") as guest:
        other = await guest.open("/console/dead")
        await expect(group(other)).to_contain_text("Ada looks at it <b>now</b>")
        await expect(other.get_by_role("note")).to_contain_text("guest has the role read")
        retry = group(other).get_by_role("button", name="Retry")
        await expect(retry).to_have_attribute("aria-disabled", "true")
        await retry.click(force=True)
        await expect(other.get_by_role("dialog")).to_have_count(0)


async def test_a_call_that_may_have_happened_needs_a_decision(admin: Operator) -> None:
    page = await open_with(admin, "pay", agent="cashier")
    unknown = group(page, "may have happened")
    await expect(unknown).to_contain_text("needs a decision")
    await action(unknown, "Retry").click()
    await page.get_by_role("button", name="It did: go on").click()
    await page.get_by_role("button", name="Retry 1 dead letter").click()
    await page.clock.fast_forward(UNDO_ENDS)
    await expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()


async def tab_to(page: Page, name: str, most: int = 60) -> None:
    """Press Tab until the control with this name has the focus."""
    for _ in range(most):
        await page.keyboard.press("Tab")
        script = """() => document.activeElement.getAttribute("aria-label")
          ?? document.activeElement.textContent"""
        if name in (await page.evaluate(script) or ""):
            return
    raise AssertionError(f"Tab does not reach {name}")


async def test_everything_works_by_keyboard_alone(admin: Operator) -> None:
    admin.server.allow("mended")
    page = await open_with(admin, "by hand")
    await expect(group(page)).to_be_visible()
    await tab_to(page, FIRE)
    await page.keyboard.press("Enter")
    await expect(page.locator(".letter")).to_be_visible()
    await tab_to(page, "Discard the group")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Discard the group")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    await tab_to(page, "Discard 1 dead letter")
    await page.keyboard.press("Enter")
    await page.clock.fast_forward(UNDO_ENDS)
    await expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()


async def test_a_login_that_sees_only_its_own_is_told_so(
    browser: Browser, shared_server: Server
) -> None:
    async with operator(browser, shared_server, role="send", name="sender") as sender:
        page = await sender.open("/console/messages")
        await expect(page.get_by_role("link", name="Dead letters")).to_have_count(0)
