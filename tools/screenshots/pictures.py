"""The pictures: which page, in which state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from playwright.async_api import Page

Prepare = Callable[[Page], Awaitable[None]]


@dataclass(frozen=True)
class Picture:
    """A picture of a page, after `prepare` has brought it into the state to show."""

    name: str
    path: str
    wait_for: str
    prepare: Prepare | None = None


async def with_work_open(page: Page) -> None:
    await page.locator(".activity summary").last.click()
    await page.locator(".handoff").first.wait_for()


async def with_results(page: Page) -> None:
    if not await page.get_by_label("Search conversations").is_visible():
        await page.get_by_role("button", name="Menu").click()
    await page.get_by_label("Search conversations").fill("queue")
    await page.locator(".snippet").first.wait_for()


async def with_keys(page: Page) -> None:
    await page.locator("#line[data-state=live]").wait_for(state="attached")
    await page.locator("#log").focus()
    await page.keyboard.press("?")
    await page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()


async def with_numbers(page: Page) -> None:
    await page.locator(".worker").first.wait_for()
    await page.locator(".tile").first.wait_for()


async def further_down(page: Page) -> None:
    await with_numbers(page)
    await page.locator("#page-body").evaluate("node => { node.scrollTop = node.scrollHeight; }")


async def of_a_hand_off(page: Page) -> None:
    await page.get_by_role("link", name="Please check the plan").first.click()
    await page.locator(".timeline").wait_for()


async def with_dead_letters(page: Page) -> None:
    await page.locator(".group-toggle").first.click()
    await page.locator(".letter").first.wait_for()
    await page.locator(".trace summary").first.click()


async def of_a_person(page: Page) -> None:
    await page.get_by_role("link", name="Ada").first.click()
    await page.locator(".observation").first.wait_for()
    await page.locator(".sources summary").first.click()


async def with_runs(page: Page) -> None:
    await page.get_by_role("link", name="Runs of Prepare the stand-up").click()
    await page.locator("#runs tr").nth(1).wait_for()


PICTURES = (
    Picture("chat-new", "/", ".agent-card"),
    Picture("chat", "/?c=web:Ada/plan", ".bubble.theirs"),
    Picture("chat-team", "/?c=web:Ada/desk", ".activity", with_work_open),
    Picture("chat-approval", "/?c=web:Ada/ship", ".approval"),
    Picture("chat-search", "/?c=web:Ada/incident", ".bubble.theirs", with_results),
    Picture("chat-keys", "/?c=web:Ada/outbox", ".bubble.theirs", with_keys),
    Picture("console-overview", "/console", ".chart", with_numbers),
    Picture("console-overview-more", "/console", ".chart", further_down),
    Picture("console-messages", "/console/messages", "tr[data-id]"),
    Picture("console-message", "/console/messages?text=lane", "tr[data-id]", of_a_hand_off),
    Picture("console-dead", "/console/dead", ".group", with_dead_letters),
    Picture("console-agents", "/console/agents", "tr .row-link"),
    Picture("console-agent", "/console/agents/guide", "svg.chart-picture"),
    Picture("console-room", "/console/teams/desk", ".room-line"),
    Picture("console-memory", "/console/memory", ".person", of_a_person),
    Picture("console-memory-empty", "/console/memory?q=nobody", ".state-box"),
    Picture("console-access-tokens", "/console/access?tab=tokens", "tbody tr"),
    Picture("console-access-sessions", "/console/access?tab=sessions", "tbody tr"),
    Picture("console-access-pairing", "/console/access?tab=pairing", "tbody tr"),
    Picture("console-access-schedules", "/console/access?tab=schedules", "tbody tr", with_runs),
    Picture("console-access-audit", "/console/access?tab=audit", "tbody tr"),
    Picture("status", "/status", ".chart"),
    Picture("docs", "/docs", "section"),
)


async def of_a_thread(page: Page) -> None:
    await page.get_by_label("Message").fill("@holdfast please check the plan for the `lane` column")
    await page.keyboard.press("Enter")
    await page.locator("li.bot").first.wait_for()
