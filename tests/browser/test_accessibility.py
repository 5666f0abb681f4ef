"""Accessibility of the chat page as assertions: names, focus, contrast, motion, live regions."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.pages import CONTRAST, NAMELESS, exchanges, opened, say
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 360, "height": 640}
FIRST_LOAD = 150_000
"""Bytes."""


@pytest.fixture(scope="module")
def server(chat_server: Server) -> Server:
    return chat_server


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, server: Server) -> AsyncIterator[Page]:
    async with opened(browser, server) as page:
        yield page


async def with_everything(page: Page) -> None:
    """Show Markdown, a failure, a message that was not sent, and the work of a team."""
    await say(page, "write `it`", "writer")
    await exchanges(page, 1)
    await say(page, "together", "pair")
    await exchanges(page, 2)
    await page.locator(".activity summary").last.click()
    await say(page, "never", "slow")
    await page.get_by_role("button", name="Stop").click()
    await exchanges(page, 1, "failed")
    await page.route("**/api/message", lambda route: route.abort())
    await say(page, "lost", "")
    await exchanges(page, 1, "unsent")
    await page.unroute("**/api/message")


async def test_every_control_has_a_name_and_a_role(page: Page) -> None:
    await with_everything(page)
    assert await page.evaluate(NAMELESS) == []
    # Two main regions or two headings of the first level would confuse a screen reader.
    for role in ("main", "log", "navigation", "complementary"):
        await expect(page.get_by_role(role)).to_have_count(1)
    await expect(page.get_by_role("heading", level=1)).to_have_count(1)
    clickable = "document.querySelectorAll('div[onclick], span[onclick]').length"
    assert await page.evaluate(clickable) == 0
    await page.get_by_role("button", name="Account").click()
    assert await page.evaluate(NAMELESS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_has_enough_contrast(
    browser: Browser, server: Server, scheme: str
) -> None:
    async with opened(browser, server, color_scheme=scheme, reduced_motion="reduce") as page:
        least, where = await page.evaluate(CONTRAST)
        assert least >= 4.5, (least, where)
        await with_everything(page)
        least, where = await page.evaluate(CONTRAST)
        assert least >= 4.5, (least, where)
        await page.locator(".exchange").first.hover()
        least, where = await page.evaluate(CONTRAST)
        assert least >= 4.5, (least, where)
        await page.get_by_role("button", name="Account").click()
        least, where = await page.evaluate(CONTRAST)
        assert least >= 4.5, (least, where)


async def test_the_theme_is_chosen_and_kept(page: Page) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = await page.evaluate(ground)
    await page.get_by_role("button", name="Account").click()
    await page.get_by_role("button", name="Dark").click()
    assert await page.evaluate(ground) != light
    await page.reload()
    assert await page.evaluate(ground) != light
    await page.get_by_role("button", name="Account").click()
    await expect(page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
    await page.get_by_role("button", name="System").click()
    assert await page.evaluate(ground) == light


async def test_focus_goes_in_order_and_returns(page: Page) -> None:
    await page.locator(".skip").focus()
    seen: list[str] = []
    while "send" not in seen and len(seen) < 100:
        await page.keyboard.press("Tab")
        seen.append(await page.evaluate("document.activeElement.id"))
    order = [name for name in seen if name in ("new", "search", "log", "text", "agent", "send")]
    assert order == ["new", "search", "log", "text", "agent", "send"]
    account = page.get_by_role("button", name="Account")
    await account.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    for _ in range(12):
        await page.keyboard.press("Tab")
        inside = (
            "document.activeElement === document.body || document.activeElement.closest('dialog')"
        )
        assert await page.evaluate(f"Boolean({inside})")
    await page.keyboard.press("Escape")
    await expect(account).to_be_focused()


async def test_motion_stops_for_people_who_ask_for_it(browser: Browser, server: Server) -> None:
    moving = """() => document.getAnimations().filter(
      (one) => one.playState === "running" && one.effect.getComputedTiming().duration > 0).length"""
    async with opened(browser, server, reduced_motion="reduce") as page:
        await say(page, "slowly", "slow")
        await expect(page.locator(".steps")).to_contain_text("working")
        assert await page.evaluate(moving) == 0
        await page.emulate_media(reduced_motion="no-preference")
        assert await page.evaluate(moving) > 0, "the spinner turns otherwise"
        await page.get_by_role("button", name="Stop").click()


async def test_an_answer_is_announced_once_and_complete(page: Page) -> None:
    announcer = page.locator("#announcer")
    await expect(announcer).to_have_attribute("aria-live", "polite")
    await page.evaluate(
        """() => { window.announced = []; new MutationObserver(() => window.announced.push(
          document.querySelector("#announcer").textContent)).observe(
          document.querySelector("#announcer"), { childList: true }); }"""
    )
    await say(page, "hello")
    await expect(announcer).to_have_text("echo answered: you said hello")
    await exchanges(page, 1)
    assert await page.evaluate("window.announced.length") == 1
    await expect(page.get_by_role("log")).to_have_attribute("aria-live", "off")
    await expect(page.locator("#notice")).to_have_attribute("role", "alert")


async def test_a_phone_has_everything_in_reach(browser: Browser, server: Server) -> None:
    async with opened(browser, server, viewport=PHONE, has_touch=True) as page:
        await say(page, "from the phone " + "x" * 200, "writer")
        await exchanges(page, 1)
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        await expect(page.get_by_role("link", name="from the phone")).to_have_count(0)
        await page.get_by_role("button", name="Menu").click()
        await expect(page.get_by_role("link", name="from the phone")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Menu")).to_be_focused()
        small = await page.evaluate(
            """() => [...document.querySelectorAll("button, .conversation, select, textarea")]
              .filter((node) => node.getClientRects().length && !node.closest(".code-bar"))
              .filter((node) => getComputedStyle(node).visibility === "visible")
              .map((node) => [node.getBoundingClientRect().height, node.outerHTML.slice(0, 90)])
              .filter(([height]) => height < 44)"""
        )
        assert small == [], "a finger needs 44 pixels"


async def test_the_first_load_is_small_and_asks_no_other_host(
    browser: Browser, server: Server
) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    client = await context.new_cdp_session(page)
    await client.send("Network.enable")
    sizes: list[int] = []
    hosts: set[str] = set()
    client.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    await page.goto(server.login("--name", "first"))
    await expect(page.locator("#line")).to_have_attribute("data-state", "live")
    await page.wait_for_load_state("load")
    assert hosts == {server.address.removeprefix("http://")}
    assert 10_000 < sum(sizes) < FIRST_LOAD
    await context.close()


async def test_nothing_that_an_agent_writes_runs_or_is_fetched(page: Page, server: Server) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    evil = "<img src=x onerror='window.owned = 9'> [x](javascript:window.owned=10)"
    await say(page, evil, "hostile")
    await exchanges(page, 1)
    for _ in range(2):
        for link in await page.locator(".bubble.theirs a").all():
            assert (await link.get_attribute("href") or "").startswith(
                ("http:", "https:", "mailto:")
            )
            assert "noopener" in (await link.get_attribute("rel") or "")
        bad = ".exchange :is(script, iframe, style, form, svg[onload], img[onerror], [onclick])"
        await expect(page.locator(bad)).to_have_count(0)
        assert await page.evaluate("window.owned") is None
        assert [url for url in asked if not url.startswith(server.address)] == []
        await page.reload()
        await exchanges(page, 1)
    await page.get_by_label("Message").fill("@hostile")
    options = page.get_by_role("listbox").get_by_role("option")
    await expect(options.filter(has_text="<img src=x")).to_have_count(1)
    assert await page.evaluate("window.owned") is None
