"""The chat page: what is sent is answered and seen, whatever happens to page, tab or server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Response, Route, expect

from tests.browser.pages import is_live, say
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_message_is_answered_live(page: Page) -> None:
    await is_live(page)
    await say(page, "hello")
    await expect(page.locator(".bubble.theirs")).to_have_text("you said hello")
    await expect(page.locator(".exchange")).to_have_attribute("data-state", "answered")


async def test_what_happens_is_shown_while_the_agent_works(page: Page, server: Server) -> None:
    await say(page, "take your time", "slow")
    await expect(page.locator(".steps")).to_contain_text("slow is working")
    server.allow("go")
    await expect(page.locator(".bubble.theirs")).to_have_text("slowly: take your time")


async def test_a_reload_in_the_middle_of_an_answer_loses_nothing(
    page: Page, server: Server
) -> None:
    await say(page, "wait for me", "slow")
    await expect(page.locator(".steps")).to_contain_text("working")
    await page.reload()
    await expect(page.locator(".bubble.mine")).to_have_text("wait for me")
    server.allow("go")
    await expect(page.locator(".bubble.theirs")).to_have_text("slowly: wait for me")
    await page.reload()
    await expect(page.locator(".bubble.theirs")).to_have_count(1)


async def test_a_message_that_is_sent_while_the_page_still_loads_stays_in_view(
    browser: Browser, server: Server
) -> None:
    context, go_on = await browser.new_context(), asyncio.Event()
    page = await context.new_page()

    async def answer_late(route: Route) -> None:
        await go_on.wait()
        await route.continue_()

    await page.route("**/api/session", answer_late)
    await page.goto(server.link)
    await say(page, "hello")
    go_on.set()
    for _ in range(2):
        await expect(page.locator(".bubble.theirs")).to_have_text("you said hello")
        await page.reload()
    await context.close()


async def test_a_tab_that_is_opened_while_the_first_message_is_sent_shows_it(
    page: Page, server: Server
) -> None:
    await say(page, "hello")
    await expect(page.locator(".bubble.theirs")).to_have_text("you said hello")
    # The first tab leaves this mark until it knows that its message arrived.
    await page.evaluate("() => localStorage.setItem('holdfast.chat.isNew', 'true')")
    other = await page.context.new_page()
    await other.goto(server.address)
    await expect(other.locator(".bubble.theirs")).to_have_text("you said hello")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_server_restart_in_the_middle_of_an_answer_loses_nothing(
    page: Page, server: Server, how: signal.Signals
) -> None:
    await say(page, "hold fast", "slow")
    await expect(page.locator(".steps")).to_contain_text("working")
    if how == signal.SIGTERM:
        server.allow("go")
    server.end(how)
    await expect(page.locator("#line")).to_have_attribute("data-state", "away")
    server.allow("go")
    server.start()
    await expect(page.locator(".bubble.theirs")).to_have_text("slowly: hold fast")
    await is_live(page)


async def test_what_could_not_be_sent_goes_without_a_click_once_the_server_is_back(
    page: Page, server: Server
) -> None:
    await is_live(page)
    server.end()
    await say(page, "anybody there?")
    await expect(page.locator(".state")).to_contain_text("not sent")
    server.start()
    await expect(page.locator(".bubble.theirs")).to_have_text("you said anybody there?")


async def test_a_failed_message_is_retried_from_the_page(page: Page, server: Server) -> None:
    await say(page, "print this", "broken")
    await expect(page.locator(".state")).to_contain_text("failed: the printer is on fire")
    server.allow("mended")
    await page.get_by_role("button", name="Retry").click()
    await expect(page.locator(".bubble.theirs")).to_have_text("mended: print this")
    await expect(page.get_by_role("button", name="Retry")).to_have_count(0)


async def test_two_tabs_show_the_same_and_answer_once(page: Page, server: Server) -> None:
    other = await page.context.new_page()
    await other.goto(server.address)
    await say(page, "from the first")
    await expect(other.locator(".bubble.theirs")).to_have_text("you said from the first")
    await say(other, "from the second")
    for tab in (page, other):
        await expect(tab.locator(".bubble.theirs")).to_have_count(2)
        await expect(tab.locator(".bubble.theirs").last).to_have_text("you said from the second")


async def test_a_new_browser_begins_a_conversation_of_its_own(
    page: Page, server: Server, browser: Browser
) -> None:
    await say(page, "between us")
    await expect(page.locator(".bubble.theirs")).to_have_count(1)
    context = await browser.new_context()
    other = await context.new_page()
    await other.goto(server.login("--name", "other"))
    await say(other, "hello")
    await expect(other.locator(".bubble.theirs")).to_have_text("you said hello")
    await context.close()


async def test_a_conversation_is_opened_on_another_browser(
    page: Page, server: Server, browser: Browser
) -> None:
    await say(page, "plan a trip")
    await expect(page.locator(".bubble.theirs")).to_have_count(1)
    context = await browser.new_context()
    other = await context.new_page()
    await other.goto(server.login("--name", "other"))
    await other.get_by_role("link", name="plan a trip").click()
    await expect(other.locator(".bubble.theirs")).to_have_text("you said plan a trip")
    await say(other, "go on")
    await expect(other.locator(".bubble.theirs").last).to_have_text("you said go on")
    await expect(page.locator(".bubble.theirs").last).to_have_text("you said go on")
    await context.close()


async def test_responses_behind_a_page_that_was_cut_are_acknowledged(
    page: Page, server: Server
) -> None:
    async def cut(route: Route) -> None:
        """Answer the first page as if the rest did not fit into 4 MiB."""
        headers = {"x-next-since-id": "1"}
        await route.fulfill(json=[{"id": 1, "messageId": "of another"}], headers=headers)

    await page.route("**/api/responses/pending*since_id=0", cut)
    async with page.expect_request("**/api/responses/*/ack"):
        await say(page, "hello")


async def test_new_chat_is_a_new_conversation(page: Page, server: Server) -> None:
    await say(page, "first topic")
    await expect(page.locator(".bubble.theirs")).to_have_count(1)
    await page.get_by_role("button", name="New chat").click()
    await expect(page.locator(".bubble")).to_have_count(0)
    await say(page, "second topic")
    await expect(page.locator(".bubble.theirs")).to_have_text("you said second topic")
    found = await page.evaluate("fetch('/api/conversations').then((answer) => answer.json())")
    assert [one["title"] for one in found] == ["second topic", "first topic"]
    assert len({one["conversation"] for one in found}) == 2
    await page.get_by_role("link", name="first topic").click()
    await expect(page.locator(".bubble.theirs")).to_have_text("you said first topic")


async def test_the_draft_survives_a_reload(page: Page) -> None:
    await page.get_by_label("Message").fill("half a sentence")
    await page.reload()
    await expect(page.get_by_label("Message")).to_have_value("half a sentence")
    await page.keyboard.press("Enter")
    await expect(page.locator(".bubble.theirs")).to_have_text("you said half a sentence")
    await page.reload()
    await expect(page.get_by_label("Message")).to_have_value("")


async def test_a_message_that_could_not_be_sent_survives_a_reload(page: Page) -> None:
    await is_live(page)
    await page.route("**/api/message", lambda route: route.abort())
    await say(page, "keep this")
    await expect(page.locator(".state")).to_contain_text("not sent: no connection")
    await page.reload()
    await expect(page.locator(".state")).to_contain_text("not sent")
    await page.unroute("**/api/message")
    await page.context.set_offline(True)
    await page.context.set_offline(False)
    await expect(page.locator(".bubble.theirs")).to_have_text("you said keep this")


async def test_a_refused_message_waits_for_a_click(page: Page) -> None:
    await is_live(page)
    refusal = {"status": 400, "json": {"error": "too many cooks"}}
    await page.route("**/api/message", lambda route: route.fulfill(**refusal))
    await say(page, "keep this")
    await expect(page.locator(".state")).to_contain_text("not sent: too many cooks")
    await page.reload()
    await is_live(page)
    await expect(page.locator(".state")).to_contain_text("not sent: too many cooks")
    await page.unroute("**/api/message")
    await page.get_by_role("button", name="Send again").click()
    await expect(page.locator(".bubble.theirs")).to_have_text("you said keep this")


async def test_a_message_that_was_not_sent_can_be_discarded(page: Page) -> None:
    await is_live(page)
    await page.route("**/api/message", lambda route: route.abort())
    await say(page, "never mind")
    await page.get_by_role("button", name="Discard").click()
    await expect(page.locator(".exchange")).to_have_count(0)
    await page.reload()
    await is_live(page)
    await expect(page.locator(".exchange")).to_have_count(0)


FILL = """() => {
  for (const size of [1e6, 1e4, 1e2, 1]) {
    try {
      for (let nth = 0; ; nth++) localStorage.setItem(`fill${size}-${nth}`, "x".repeat(size));
    } catch {}
  }
}"""


async def test_a_full_local_storage_loses_nothing(page: Page) -> None:
    await is_live(page)
    await page.evaluate(FILL)
    for number in range(3):
        await say(page, f"message {number}")
        await expect(page.locator(".bubble.theirs")).to_have_count(number + 1)
    await page.get_by_label("Message").fill("half a sentence")
    await page.reload()
    await expect(page.locator(".bubble.mine")).to_have_text([f"message {n}" for n in range(3)])
    await expect(page.locator(".bubble.theirs")).to_have_count(3)
    await expect(page.get_by_label("Message")).to_have_value("half a sentence")


async def test_the_answers_of_a_team_come_one_by_one_until_it_is_done(
    page: Page, server: Server
) -> None:
    await say(page, "please", "pair")
    await expect(page.locator(".bubble.theirs")).to_have_text("I ask for help")
    await expect(page.locator(".exchange")).to_have_attribute("data-state", "working")
    server.allow("go")
    await expect(page.locator(".bubble.theirs")).to_have_text(["I ask for help", "I helped"])
    await expect(page.locator(".exchange")).to_have_attribute("data-state", "answered")
    await expect(page.locator(".state")).to_contain_text("done")


async def test_what_is_written_never_becomes_markup(page: Page) -> None:
    evil = (
        "<img src=x onerror=\"document.title='owned'\">"
        " <script>document.title='owned'</script>\n\n```\n<b>code</b>\n```"
    )
    await say(page, evil)
    await expect(page.locator(".bubble.theirs")).to_contain_text("<img src=x")
    await expect(page.locator(".bubble.theirs pre code")).to_have_text("<b>code</b>")
    assert await page.title() != "owned"
    assert await page.locator(".bubble img, .bubble script, .bubble b").count() == 0


async def test_a_new_conversation_is_not_asked_for_before_its_first_message(page: Page) -> None:
    refusals: list[str] = []

    def note(answer: Response) -> None:
        if answer.status >= 400:
            refusals.append(answer.url)

    page.on("response", note)
    await page.reload()
    await is_live(page)
    await page.get_by_role("button", name="New chat").click()
    await say(page, "hello")
    await expect(page.locator(".bubble.theirs")).to_have_count(1)
    await page.reload()
    await expect(page.locator(".bubble.theirs")).to_have_count(1)
    assert refusals == []


async def test_the_page_works_by_keyboard_alone(page: Page) -> None:
    await expect(page.get_by_label("Message")).to_be_focused()
    await page.keyboard.type("first line")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("second line")
    await page.keyboard.press("Enter")
    await expect(page.locator(".bubble.mine")).to_have_text(
        "first line\nsecond line", use_inner_text=True
    )
    await expect(page.get_by_label("Message")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_fits_a_narrow_screen(
    browser: Browser, server: Server, scheme: str, shots: Shots
) -> None:
    context = await browser.new_context(viewport={"width": 360, "height": 640})
    page = await context.new_page()
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await page.goto(server.link)
    await say(page, "a word that is longer than the screen is wide: " + "x" * 200)
    await expect(page.locator(".bubble.theirs")).to_have_count(1)
    assert await page.evaluate("document.documentElement.scrollWidth") == 360
    send = await page.get_by_role("button", name="Send").bounding_box()
    assert send is not None
    assert send["y"] + send["height"] <= 640
    assert send["height"] >= 44
    await page.screenshot(path=shots(f"phone-{scheme}.png"))
    await context.close()


async def test_somebody_who_is_not_logged_in_is_told_how(browser: Browser, server: Server) -> None:
    page = await browser.new_page()
    await page.goto(server.address)
    await expect(page.get_by_role("alert")).to_contain_text("not logged in")
    await expect(page.locator("#line")).to_have_text("Not logged in")
    await page.close()


Shots = Callable[[str], Path]


@pytest.fixture
def shots(tmp_path: Path) -> Shots:
    """Where screenshots go."""
    return lambda name: tmp_path / name
