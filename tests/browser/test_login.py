"""The page and its session: a confirmation, what a role is offered, logging out."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.pages import exchanges, is_live, say
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_logout_button_ends_the_session(page: Page, server: Server) -> None:
    await page.get_by_role("button", name="Account").click()
    await page.get_by_role("button", name="Log out").click()
    await expect(page.locator("#notice")).to_contain_text("holdfast login")
    await expect(page.locator("#line")).to_have_attribute("data-state", "out")
    await page.goto(server.link)
    await expect(page.locator("main")).to_contain_text(
        "invalid or used login link; run holdfast login for a new one"
    )


async def with_unsent_texts(page: Page) -> None:
    """Leave a message that could not be sent, and a draft."""
    await page.route("**/api/message", lambda route: route.abort())
    await say(page, "between us")
    await exchanges(page, 1, "unsent")
    await page.get_by_label("Message").fill("half a secret")
    await page.unroute("**/api/message")


async def log_in_as(page: Page, server: Server, name: str) -> None:
    """Log in while somebody else is logged in in this browser."""
    await page.goto(server.login("--name", name))
    await page.get_by_role("button", name=f"Log in as {name}").click()
    await is_live(page)


async def has_no_text_of_another(page: Page) -> None:
    await expect(page.get_by_role("button", name="Account")).to_have_attribute(
        "title", "Logged in as other (admin)"
    )
    await is_live(page)
    await expect(page.get_by_label("Message")).to_have_value("")
    await say(page, "my own")
    await exchanges(page, 1)
    await expect(page.locator(".bubble.mine")).to_have_text("my own")


async def test_texts_that_were_not_sent_are_gone_after_a_logout(page: Page, server: Server) -> None:
    await with_unsent_texts(page)
    await page.get_by_role("button", name="Account").click()
    await page.get_by_role("button", name="Log out").click()
    await expect(page.locator("#line")).to_have_attribute("data-state", "out")
    kept = await page.evaluate("JSON.stringify(localStorage) + JSON.stringify(history.state)")
    assert "between us" not in kept
    assert "half a secret" not in kept
    await page.goto(server.login("--name", "other"))
    await has_no_text_of_another(page)


async def test_texts_that_were_not_sent_wait_for_the_person_who_wrote_them(
    page: Page, server: Server
) -> None:
    await with_unsent_texts(page)
    other = await page.context.new_page()
    await log_in_as(other, server, "other")
    await page.evaluate("dispatchEvent(new Event('offline'))")
    await page.evaluate("dispatchEvent(new Event('online'))")
    await has_no_text_of_another(page)
    await log_in_as(page, server, "tester")
    # The server stores the unsent one last; until then, it stands where it was typed.
    await exchanges(page, 2)
    await expect(page.locator(".bubble.mine")).to_have_text(["my own", "between us"])


async def test_a_link_on_a_foreign_page_logs_in_only_after_a_click(
    page: Page, browser: Browser, server: Server
) -> None:
    account = page.get_by_role("button", name="Account")
    await expect(account).to_have_attribute("title", "Logged in as tester (admin)")
    other = server.login("--role", "send", "--name", "mallory")
    # Another origin, whose host name the server accepts, too.
    await page.goto(server.address.replace("127.0.0.1", "localhost"))
    await page.evaluate("link => { location.href = link; }", other)
    button = page.get_by_role("button", name="Log in as mallory")
    await expect(button).to_be_visible()
    await button.click()
    await expect(account).to_have_attribute("title", "Logged in as mallory (send)")


async def test_the_page_offers_only_what_the_role_may_do(
    page: Page, browser: Browser, server: Server
) -> None:
    await say(page, "nobody can", "broken")
    await expect(page.get_by_role("button", name="Retry")).to_be_visible()
    state = await page.evaluate("JSON.stringify(localStorage)")
    for role, may_send in (("send", True), ("read", False)):
        context = await browser.new_context()
        other = await context.new_page()
        await other.goto(server.login("--role", role))
        # The page may have opened a conversation of its own already.
        await other.evaluate(
            """state => {
              history.replaceState(null, "");
              Object.assign(localStorage, JSON.parse(state));
            }""",
            state,
        )
        await other.reload()
        await expect(other.locator(".exchange")).to_have_attribute("data-state", "failed")
        account = other.get_by_role("button", name="Account")
        await expect(account).to_have_attribute("title", re.compile(rf"\({role}\)"))
        await expect(other.get_by_role("button", name="Retry")).to_have_count(0)
        await expect(other.locator("#composer")).to_be_visible(visible=may_send)
        await expect(other.locator("#notice")).to_be_visible(visible=not may_send)
        await context.close()


async def test_the_direction_of_a_text_follows_its_content(page: Page) -> None:
    await say(page, "שלום עולם")
    await expect(page.locator(".bubble.mine")).to_have_css("direction", "rtl")
    await expect(page.get_by_label("Message")).to_have_attribute("dir", "auto")
