"""Access in the console: tokens, sessions, pairing, schedules and the audit log."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page, Route, expect

from holdfast.store import open_store
from holdfast.store.pairing import Pairing, open_pairings, request_pairing
from tests.browser.operator import Operator, operator
from tests.browser.requests import ask, send
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def tab(admin: Operator, name: str) -> Page:
    page = await admin.open(f"/console/access?tab={name}")
    await expect(page.get_by_role("link", name="Access")).to_have_attribute("aria-current", "page")
    return page


async def status_with(page: Page, secret: str) -> int:
    script = """secret => fetch('/api/session', {headers: {authorization: 'Bearer ' + secret}})
      .then((answer) => answer.status)"""
    status: int = await page.evaluate(script, secret)
    return status


async def test_an_admin_creates_a_token_sees_its_secret_once_and_revokes_it(
    admin: Operator,
) -> None:
    page = await tab(admin, "tokens")
    await page.get_by_role("button", name="New token").click()
    await page.get_by_label("Name").fill("ci bot")
    await page.get_by_label("Role").select_option("send")
    await page.get_by_label("Channels").fill("web, crm")
    await page.get_by_label("Agents").fill("echo")
    await page.get_by_label("Sender").fill("CI")
    await page.get_by_label("Expires").fill("30d")
    await page.get_by_role("button", name="Create token").click()
    row = page.get_by_role("row").filter(has_text="ci bot")
    await expect(row).to_contain_text("channels web, crm; agents echo; sender CI")
    secret = await page.locator("#secret-text").inner_text()
    assert secret.startswith("hft_")
    assert await status_with(page, secret) == 200
    await page.reload()
    await expect(row).to_be_visible()
    assert secret not in await page.content(), "shown once"
    await page.get_by_role("button", name="Revoke ci bot").click()
    await page.get_by_role("button", name="Revoke token").click()
    await expect(row).to_have_count(0)
    assert await status_with(page, secret) == 401
    await tab(admin, "audit")
    for act in ("token created", "token revoked"):
        await expect(page.get_by_role("cell", name=act).first).to_be_visible()


async def test_lists_go_on_where_a_page_of_the_server_ends(admin: Operator) -> None:
    async def one_by_one(route: Route) -> None:
        await route.continue_(url=f"{route.request.url}?limit=1")

    page = await tab(admin, "tokens")
    for name in ("first", "second", "third"):
        body = {"name": name, "role": "read"}
        await ask(page, "POST", "/api/tokens", body)
    await page.route("**/api/tokens", one_by_one)
    await page.reload()
    for name in ("first", "second", "third"):
        await expect(page.get_by_role("row").filter(has_text=name)).to_be_visible()


async def test_a_page_that_may_not_copy_says_so(admin: Operator) -> None:
    """Browsers offer the clipboard on HTTPS and on the same machine alone."""
    await admin.page.add_init_script("delete Navigator.prototype.clipboard")
    page = await tab(admin, "tokens")
    await page.get_by_role("button", name="New token").click()
    await page.get_by_label("Name").fill("copied by hand")
    await page.get_by_role("button", name="Create token").click()
    await page.get_by_role("button", name="Copy", exact=True).click()
    refusal = page.locator(".toast").filter(has_text="does not let this page copy")
    await expect(refusal).to_have_count(1)
    message_id = await send(page, "copy me", "echo")
    event = (await ask(page, "GET", f"/api/message/{message_id}"))["eventId"]
    await admin.open(f"/console/messages/{event}")
    await page.get_by_role("button", name="Copy as curl").click()
    await expect(refusal).to_have_count(1)
    await admin.open(f"/console/messages/{event}?tab=json")
    await page.get_by_role("button", name="Copy", exact=True).click()
    await expect(refusal).to_have_count(1)


async def test_a_wrong_token_is_refused_with_the_reason_and_nothing_typed_is_lost(
    admin: Operator,
) -> None:
    page = await tab(admin, "tokens")
    await page.get_by_role("button", name="New token").click()
    await page.get_by_label("Name").fill("boss")
    await page.get_by_label("Role").select_option("admin")
    await page.get_by_label("Sender").fill("Ada")
    await page.get_by_role("button", name="Create token").click()
    await expect(page.get_by_role("alert").filter(visible=True)).to_contain_text("cannot be bound")
    await expect(page.get_by_label("Name")).to_have_value("boss")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="New token")).to_be_focused()


async def test_an_admin_ends_the_session_of_another_browser(
    admin: Operator, browser: Browser
) -> None:
    async with operator(browser, admin.server, role="read", name="other") as other:
        page = await tab(admin, "sessions")
        await expect(page.get_by_role("row").filter(has_text="this one")).to_contain_text("tester")
        await page.get_by_role("button", name="End other").click()
        await expect(page.get_by_role("button", name="End other")).to_have_count(0)
        await other.open("/console/access")
        await expect(other.page.get_by_role("alert").first).to_contain_text("not logged in")


async def ask_to_pair(server: Server, sender: str) -> Pairing:
    async with open_store(server.database) as store:
        request = await request_pairing(open_pairings(store), "telegram", "4711", sender)
    assert request is not None
    return request


async def test_an_admin_approves_a_stranger_and_revokes_the_person(admin: Operator) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    request = await ask_to_pair(admin.server, hostile)
    page = await tab(admin, "pairing")
    await expect(page.locator("#requests")).to_contain_text(hostile)
    await expect(page.get_by_role("link", name="Pairing")).to_contain_text("1")
    await page.get_by_role("button", name=f"Approve {request.code}").click()
    await expect(page.locator("#requests")).to_contain_text("Nobody waits")
    await expect(page.locator("#people")).to_contain_text("4711")
    await page.get_by_role("button", name="Revoke 4711").click()
    await expect(page.get_by_role("dialog", name=f"Revoke {hostile}?")).to_be_visible()
    await page.get_by_role("button", name="Revoke", exact=True).click()
    await expect(page.locator("#people")).to_contain_text("Nobody is approved yet")
    await tab(admin, "audit")
    await expect(page.get_by_role("cell", name="approved", exact=True).first).to_be_visible()


async def test_an_admin_adds_runs_pauses_and_removes_a_schedule(admin: Operator) -> None:
    page = await tab(admin, "schedules")
    await page.get_by_role("button", name="New schedule").click()
    await page.get_by_label("When").fill("every never")
    await page.get_by_label("Message", exact=True).fill("prepare the <b>stand-up</b>")
    await page.get_by_label("Agent").fill("echo")
    await page.get_by_role("button", name="Add schedule").click()
    await expect(page.get_by_role("alert").filter(visible=True)).not_to_be_empty()
    await page.get_by_label("When").fill("0 9 * * mon-fri")
    await page.get_by_role("button", name="Add schedule").click()
    row = page.locator("#schedules").get_by_role("row").filter(has_text="prepare the <b>stand")
    await row.get_by_role("button", name="Run now").click()
    await expect(page.get_by_role("status").filter(has_text="is stored")).to_be_visible()
    await row.get_by_role("button", name="Pause").click()
    await expect(row).to_contain_text("paused")
    await row.get_by_role("button", name="Resume").click()
    await expect(row).not_to_contain_text("paused")
    await row.get_by_role("link", name="Runs of prepare").click()
    runs = page.get_by_role("table", name="Runs of the schedule")
    await expect(runs.get_by_role("row")).to_have_count(2)
    await expect(runs).to_contain_text("you said prepare the <b>stand-up</b>")
    await page.reload()
    await runs.get_by_role("link", name="you said").click()
    await expect(page.locator(".message-text")).to_contain_text("prepare the <b>stand-up</b>")
    await page.go_back()
    await row.get_by_role("button", name="Remove").click()
    await page.get_by_role("button", name="Remove", exact=True).click()
    await expect(row).to_have_count(0)
    await expect(runs).to_have_count(0)


async def test_filters_of_the_audit_log_live_in_the_address(admin: Operator) -> None:
    page = await tab(admin, "audit&actor=nobody-at-all")
    await expect(page.get_by_label("Actor")).to_have_value("nobody-at-all")
    await expect(page.locator("#page-body")).to_contain_text("No act matches")
    await page.get_by_role("button", name="Clear filters").click()
    await expect(page.get_by_role("row").nth(1)).to_be_visible()
    assert "actor" not in page.url
    await page.get_by_label("Action").fill("logged in")
    await expect(page.get_by_role("cell", name="token created")).to_have_count(0)
    await expect(page).to_have_url(re.compile("action=logged"))
    await page.reload()
    await expect(page.get_by_label("Action")).to_have_value("logged in")


async def test_a_reader_is_told_why_access_is_not_offered(
    browser: Browser, shared_server: Server
) -> None:
    async with operator(browser, shared_server, role="read", name="guest") as guest:
        page = await guest.open("/console/access?tab=tokens")
        await expect(page.locator("#page-body")).to_contain_text("Only admins manage tokens")
        await expect(page.locator("#page-body")).to_contain_text(
            "Needs the role admin; guest has the role read."
        )
        await expect(page.get_by_role("button", name="New token")).to_have_count(0)
        await page.get_by_role("link", name="Schedules").click()
        button = page.get_by_role("button", name="New schedule")
        await expect(button).to_have_attribute("aria-disabled", "true")
        await expect(button).to_have_accessible_description(
            "Needs the role admin; guest has the role read."
        )


async def test_the_old_address_leads_to_the_console(admin: Operator) -> None:
    page = await admin.open("/access")
    await expect(page).to_have_url(f"{admin.server.address}/console/access")
    await expect(page.get_by_role("heading", name="Access")).to_be_visible()
