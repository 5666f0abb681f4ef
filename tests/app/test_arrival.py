"""Messages of one conversation are stored in the order in which their platform sent them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.queue.event import NewEvent
from holdfast.settings import Settings
from tests.steps import finished, running


class Burst:
    """A platform that delivers messages at once, without waiting for their acknowledgements."""

    name = "burst"

    def __init__(self) -> None:
        self.put: Callable[[NewEvent], Awaitable[int | None]] | None = None
        self._started = asyncio.Event()

    async def run(self, put: Callable[[NewEvent], Awaitable[int | None]]) -> None:
        self.put = put
        self._started.set()
        await asyncio.Event().wait()

    async def send(self, response: Any) -> None:
        return None

    async def deliver(self, *texts: str) -> None:
        await self._started.wait()
        assert self.put is not None
        async with asyncio.TaskGroup() as group:
            for text in texts:
                event = {
                    "kind": "message",
                    "channel": self.name,
                    "conversation": "c",
                    "sender": "ann",
                    "message": text,
                }
                group.create_task(self.put(NewEvent(event=event)))  # type: ignore[arg-type]


async def test_messages_delivered_at_once_are_stored_in_order(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = AgentHarness(echo)
    burst = Burst()
    app.add_channel(burst)
    texts = [str(number) for number in range(20)]
    async with running(app, settings):
        # The first message waits longer for its route than those behind it.
        find, waits = app._directory, [0.05, *[0.0] * len(texts)]

        async def slowly(*args: Any) -> Any:
            await asyncio.sleep(waits.pop(0))
            return await find(*args)

        monkeypatch.setattr(app, "_directory", slowly)
        await burst.deliver(*texts)
        ended = await finished(app.store, queue="inbox", count=len(texts))
    assert [event.event["message"] for event in sorted(ended, key=lambda event: event.id)] == texts
