"""Holdfast: the store as its channels use it, and an app for `holdfast work`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from bench.peers.side.event import Event
from bench.peers.side.handler import handle
from holdfast import AgentHarness, Turn
from holdfast.queue.event import INBOX, NewEvent
from holdfast.store import open_store

TARGET = "coder"


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[object]:
    async with open_store(url, pool_size=connections) as store:

        async def put(events: list[Event]) -> None:
            await store.put([_new(event) for event in events])

        yield put


def _new(event: Event) -> NewEvent:
    return NewEvent(
        queue=INBOX, event=event.payload, target=TARGET, lane=event.lane, message_id=event.key
    )


async def answer(turn: Turn) -> None:
    """Handle the event as every queue does; what it adds is stored with the end of the turn."""

    async def emit(event: Event) -> None:
        turn.emit(_new(event))

    await handle(dict(turn.event), emit)


app = AgentHarness(answer, default=TARGET)

# A worker that is stopped keeps its session, so only the end of the lease hands its turn over.
probe = AgentHarness(default=TARGET)
probe.add(TARGET, answer, lease=timedelta(seconds=2))
