"""Agents and teams in the console: numbers, pauses over all processes, rooms."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from tests.browser.operator import Operator, operator
from tests.browser.requests import ask, eventually, send
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_agents_are_listed_with_who_serves_them(admin: Operator) -> None:
    page = await admin.open("/console/agents")
    await send(page, "hello", "echo")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="echo", exact=True))
    await expect(row).to_contain_text("1 process")
    await expect(row).to_contain_text("0.8.0")
    await expect(row).to_contain_text("100 %")
    await row.get_by_role("link", name="echo", exact=True).click()
    await expect(page.get_by_role("img", name="Time to answer")).to_be_visible()
    await expect(page.get_by_role("table", name="Latest messages")).to_contain_text("hello")


async def test_a_paused_agent_keeps_its_messages_and_everybody_sees_why(
    admin: Operator, browser: Browser
) -> None:
    page = await admin.open("/console/agents")
    await page.get_by_role("button", name="Pause the agent echo").click()
    await page.get_by_label("Reason").fill("new <b>prompt</b>")
    await page.get_by_role("button", name="Pause", exact=True).click()
    resume = page.get_by_role("button", name="Resume the agent echo")
    await expect(resume).to_be_visible()
    message_id = await send(page, "later", "echo")
    async with operator(browser, admin.server, role="read", name="guest") as guest:
        other = await guest.open("/console")
        await expect(other.locator(".attention").filter(has_text="paused")).to_contain_text(
            "new <b>prompt</b>"
        )
        await other.goto(f"{admin.server.address}/console/agents")
        await expect(other.get_by_role("button", name="Resume the agent echo")).to_have_attribute(
            "aria-disabled", "true"
        )
        assert (await ask(page, "GET", f"/api/message/{message_id}"))["status"] == "pending"
        await resume.click()
        await expect(other.get_by_role("button", name="Pause the agent echo")).to_be_visible()

    async def is_completed() -> bool:
        status: str = (await ask(page, "GET", f"/api/message/{message_id}"))["status"]
        return status == "completed"

    await eventually(is_completed)


async def test_a_queue_is_paused_and_resumed(admin: Operator) -> None:
    page = await admin.open("/console")
    await page.get_by_role("button", name="Pause the queue memory").click()
    await page.get_by_role("button", name="Pause", exact=True).click()
    row = page.get_by_role("row").filter(has_text="memory")
    await expect(row).to_contain_text("paused")
    await page.get_by_role("button", name="Resume the queue memory").click()
    await expect(row).not_to_contain_text("paused")


async def test_a_channel_is_paused_and_its_responses_wait(admin: Operator) -> None:
    page = await admin.open("/console/agents")
    channel = page.locator(".health").filter(has_text="pager")
    await page.get_by_role("button", name="Pause the channel pager").click()
    await page.get_by_label("Reason").fill("a new antenna")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(channel).to_contain_text("a new antenna")
    message_id = await send(page, "ring", "echo", channel="pager")

    async def answer_waits() -> bool:
        waiting = await ask(page, "GET", "/api/responses/pending?channel=pager")
        return [one["messageId"] for one in waiting] == [message_id]

    await eventually(answer_waits)
    await page.get_by_role("button", name="Resume the channel pager").click()
    await expect(channel).not_to_contain_text("a new antenna")

    async def is_delivered() -> bool:
        return not await ask(page, "GET", "/api/responses/pending?channel=pager")

    await eventually(is_delivered)


async def test_an_agent_has_one_colour_wherever_it_is_shown(admin: Operator) -> None:
    page = await admin.open("/console/agents")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="lead", exact=True))
    in_table = await row.locator(".avatar").get_attribute("class")
    member = page.locator(".members li").filter(has_text="lead")
    assert await member.locator(".avatar").get_attribute("class") == in_table
    await expect(row.get_by_role("cell").nth(7)).to_have_text("–")


async def test_the_room_of_a_team_is_read_and_written(admin: Operator, browser: Browser) -> None:
    page = await admin.open("/console/agents")
    await page.get_by_role("link", name="Open the room of Pair").click()
    await expect(page.get_by_role("heading", name="Pair")).to_be_visible()
    box = page.get_by_label("Line for the room")
    await box.fill("what is <b>new</b>?")
    await box.press("Enter")
    line = page.locator(".room-line").filter(has_text="what is <b>new</b>?")
    await expect(line).to_have_count(1)
    await expect(box).to_have_value("")
    await expect(line).to_contain_text("A person")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".room-line").filter(has_text="A person")).to_have_count(1)
    answer = page.locator(".room-line").filter(has_text="I ask for help")
    await expect(answer.locator(".prose")).to_have_count(1)
    messages = await ask(page, "GET", "/api/messages?agent=lead")
    assert messages[0]["message"] == "what is <b>new</b>?"
    async with operator(browser, admin.server, role="read", name="guest") as guest:
        other = await guest.open("/console/teams/pair")
        await expect(other.get_by_role("log")).to_contain_text("what is <b>new</b>?")
        await expect(other.get_by_role("note")).to_contain_text("Needs the role send")
        await box.fill("and now?")
        await box.press("Enter")
        await expect(other.get_by_role("log")).to_contain_text("and now?")


async def test_an_unknown_agent_says_so(admin: Operator, shared_server: Server) -> None:
    page = await admin.open("/console/agents/%3Cimg%20src%3Dx%3E")
    await expect(page.locator("#page-body")).to_contain_text("No agent <img src=x> is known.")
