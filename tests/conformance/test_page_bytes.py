"""Lists end at a number of bytes, on every engine, and go on where they ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.chat import AgentMessage, ChatMessage, ChatStore
from holdfast.queue.event import INBOX, OUTBOX, NewEvent
from holdfast.queue.pages import Page
from holdfast.queue.record import Activity
from holdfast.queue.store import Filter

TEXT = "é" * 50_000
ROWS = 12
MOST = 350_000
"""Bytes of three rows and a half; the row that reaches them is the last."""

List = Callable[..., Awaitable[Page[Any]]]


async def _responses(store: ChatStore) -> None:
    payload = {"kind": "response", "channel": "c", "message": TEXT}
    await store.put([NewEvent(event=payload, queue=OUTBOX, target="c") for _ in range(ROWS)])


async def _leased(store: ChatStore) -> None:
    payload = {"kind": "message", "channel": "c", "message": TEXT}
    await store.put([NewEvent(event=payload, target="a") for _ in range(ROWS)])
    await store.claim(INBOX, ["a"], limit=ROWS, lease=timedelta(minutes=1))


async def _lines(store: ChatStore) -> None:
    line: dict[str, Any] = {"channel": "c", "sender": "s", "message_id": "m", "conversation": "k"}
    lines = [AgentMessage(agent_id="a", role="user", content=TEXT, **line) for _ in range(ROWS)]
    await store.put([], records=lines)


async def _room(store: ChatStore) -> None:
    for _ in range(ROWS):
        await store.say(ChatMessage(team_id="t", from_agent="a", message=TEXT))


CASES: dict[
    str, tuple[Callable[[ChatStore], Awaitable[None]], Callable[[ChatStore], List], str]
] = {
    "recent": (_responses, lambda store: lambda **page: store.recent(OUTBOX, **page), "before_id"),
    "waiting": (
        _responses,
        lambda store: lambda **page: store.waiting(OUTBOX, "c", **page),
        "since_id",
    ),
    "leased": (_leased, lambda store: lambda **page: store.leased(INBOX, **page), "before_id"),
    "agent_messages": (
        _lines,
        lambda store: lambda **page: store.agent_messages("a", **page),
        "before_id",
    ),
    "conversation": (
        _lines,
        lambda store: lambda **page: store.agent_messages("a", conversation="k", **page),
        "before_id",
    ),
    "chat_messages": (
        _room,
        lambda store: lambda **page: store.chat_messages("t", **page),
        "before_id",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_list_ends_at_a_number_of_bytes_and_goes_on_there(
    store: ChatStore, case: str
) -> None:
    fill, choose, cursor = CASES[case]
    await fill(store)
    await _check_pages(choose(store), cursor)


async def test_finished_and_dead_end_at_a_number_of_bytes(store: ChatStore) -> None:
    await _leased(store)
    events = await store.leased(INBOX)
    for event in events:
        assert await store.cancel(event.id, "by the test")
    await _check_pages(lambda **page: store.dead(Filter(queue=INBOX), **page), "before_id")
    await _check_pages(lambda **page: store.finished(Filter(queue=INBOX), **page), "before_id")


async def test_what_happened_ends_at_a_number_of_bytes(store: ChatStore) -> None:
    await store.set_setting("activity", True)
    for _ in range(ROWS):
        await store.put([], records=[Activity(({"type": "response_ready", "message": TEXT},))])
    first, following = await store.activity_span()
    sizes, position = [], first
    while position < following:
        page = await store.activity(position, limit=500, most_bytes=MOST)
        sizes.append(len(page))
        assert page.has_more == (len(page) == 4)
        position = page[-1].position + 1
    assert sum(sizes) == ROWS
    assert max(sizes) == 4


async def _check_pages(look: List, cursor: str) -> None:
    whole = await look(limit=1000)
    assert (len(whole), whole.has_more) == (ROWS, False)
    pages, where = [], dict[str, int]()
    while page := await look(limit=1000, most_bytes=MOST, **where):
        pages.append(page)
        where = {cursor: page[-1].id}
    assert [len(page) for page in pages] == [4, 4, 4]
    assert [row.id for page in pages for row in page] == [row.id for row in whole]
    assert all(page.has_more for page in pages)
    alone = await look(limit=1000, most_bytes=1)
    assert (len(alone), alone.has_more) == (1, True), "a page has a row, however large"
    few = await look(limit=2, most_bytes=MOST)
    assert (len(few), few.has_more) == (2, True)
