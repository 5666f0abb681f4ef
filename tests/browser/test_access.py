"""The access page: tokens, sessions and the audit log (issue 13, item 15)."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_admin_creates_a_token_sees_its_secret_once_and_revokes_it(
    page: Page, server: Server
) -> None:
    await page.get_by_role("link", name="Access").click()
    await page.get_by_label("Name").fill("ci bot")
    await page.get_by_label("Role").select_option("send")
    await page.get_by_label("Channels").fill("web, crm")
    await page.get_by_label("Agents").fill("echo")
    await page.get_by_label("Sender").fill("CI")
    await page.get_by_label("Expires").fill("30d")
    await page.get_by_role("button", name="Create token").click()
    row = page.locator("#tokens tr")
    await expect(row).to_contain_text("ci bot")
    await expect(row).to_contain_text("channels web, crm; agents echo; sender CI")
    secret = await page.locator("#secret-text").inner_text()
    assert secret.startswith("hft_")
    await expect(page.locator("#audit")).to_contain_text("token_created")
    path = "fetch('/api/session', {headers: {authorization: 'Bearer ' + secret}})"
    works = f"secret => {path}.then((answer) => answer.status)"
    assert await page.evaluate(works, secret) == 200
    await page.reload()
    await expect(row).to_contain_text("ci bot")
    assert secret not in await page.content(), "shown once"
    await page.get_by_role("button", name="Revoke ci bot").click()
    await expect(row).to_have_count(0)
    await expect(page.locator("#audit")).to_contain_text("token_revoked")
    assert await page.evaluate(works, secret) == 401


async def test_a_wrong_token_is_refused_with_the_reason(page: Page) -> None:
    await page.get_by_role("link", name="Access").click()
    await page.get_by_label("Name").fill("boss")
    await page.get_by_label("Role").select_option("admin")
    await page.get_by_label("Sender").fill("Ada")
    await page.get_by_role("button", name="Create token").click()
    await expect(page.get_by_role("alert")).to_contain_text("cannot be bound")
    await expect(page.get_by_label("Name")).to_have_value("boss")


async def test_an_admin_ends_the_session_of_another_browser(
    page: Page, server: Server, browser: Browser
) -> None:
    context = await browser.new_context()
    other = await context.new_page()
    await other.goto(server.login("--name", "other", "--role", "read"))
    await expect(other.get_by_role("button", name="Log out")).to_be_visible()
    await page.get_by_role("link", name="Access").click()
    await expect(page.locator("#sessions tr")).to_have_count(2)
    await expect(page.locator("#sessions")).to_contain_text("tester (this one)")
    await page.get_by_role("button", name="End other").click()
    await expect(page.locator("#sessions tr")).to_have_count(1)
    await expect(page.locator("#audit")).to_contain_text("logged_out")
    await other.reload()
    await expect(other.get_by_role("alert")).to_contain_text("not logged in")
    await context.close()


async def test_only_admins_are_offered_the_access_page(browser: Browser, server: Server) -> None:
    context = await browser.new_context()
    other = await context.new_page()
    await other.goto(server.login("--role", "send"))
    await expect(other.get_by_role("button", name="Log out")).to_be_visible()
    await expect(other.get_by_role("link", name="Access")).to_have_count(0)
    await other.goto(f"{server.address}/access")
    await expect(other.get_by_role("alert")).to_contain_text("Only admins manage access")
    await expect(other.get_by_role("button", name="Create token")).to_have_count(0)
    await context.close()
