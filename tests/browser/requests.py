"""Requests of a logged-in page, as its own scripts would make them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from playwright.async_api import Page

ASK = """async ([method, path, body]) => {
  const answer = await fetch(path, {
    method,
    headers: body === null ? {} : { "content-type": "application/json" },
    body: body === null ? undefined : JSON.stringify(body),
  });
  return { status: answer.status, content: await answer.json() };
}"""


async def ask(page: Page, method: str, path: str, body: object = None) -> Any:
    """Return the content of a successful answer."""
    answer = await page.evaluate(ASK, [method, path, body])
    assert answer["status"] == 200, answer
    return answer["content"]


async def send(page: Page, text: str, agent: str, **further: Any) -> str:
    """Send a message. Returns its id."""
    body = {"message": text, "agent": agent, **further}
    message_id: str = (await ask(page, "POST", "/api/message", body))["messageId"]
    return message_id


async def eventually(look: Callable[[], Awaitable[bool]]) -> None:
    """Look until it is true; fail after a minute."""
    async with asyncio.timeout(60):
        while not await look():  # noqa: ASYNC110 - the server has no signal for it
            await asyncio.sleep(0.05)
