"""Follow the answers to a message: print each as it comes, until its chain is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.cli.printing import short
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.message import Payload
    from holdfast.queue.event import Event
    from holdfast.store import Store
    from holdfast.store.answer import Position
    from holdfast.store.chain import Chain

POLL_INTERVAL = timedelta(milliseconds=500)
"""Time between two reads without a wake-up; a turn that ends without an answer sends none."""
GROWTH_INTERVAL = timedelta(milliseconds=250)
"""Time between two reads of a text that is shown while it grows."""


class AnswerReader:
    """Reads the answers to messages from a store and acknowledges them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = asyncio.Condition()
        self._default: str | None = None
        """The default agent, read once it is needed."""

    async def answers(
        self, message_id: str, show: Callable[[Payload], Awaitable[None]] | None = None
    ) -> AsyncIterator[Event]:
        """Yield the responses of all agents to a message, in order, until its chain is over.

        `show` is called with the frames of the text while it grows. Raises HoldfastError if the
        message becomes a dead letter."""
        from holdfast.store.answer import Position

        seen: set[int] = set()
        position = Position()
        while True:
            chain = await self._read(message_id)
            if show is not None:
                position = await self._show_growth(chain, position, show)
            new = [response for response in chain.responses if response.id not in seen]
            for response in new:
                seen.add(response.id)
                await self._store.ack(response.id)
                yield response
            if chain.status == "dead":
                raise HoldfastError(f"{_name(chain.message)} {_reason(chain.message)}")
            if chain.is_over:
                return
            # An acknowledged response is no longer live: look again at once.
            if not new:
                await self._wait(POLL_INTERVAL if show is None else GROWTH_INTERVAL)

    async def _show_growth(
        self, chain: Chain, seen: Position, show: Callable[[Payload], Awaitable[None]]
    ) -> Position:
        from holdfast.routing.directory import read
        from holdfast.store.answer import answer_of

        if self._default is None:
            self._default = (await read(self._store)).routing.default
        answer = answer_of(chain, chain.message.target or self._default)
        for frame, behind in () if answer.end else answer.since(seen):
            seen = behind
            await show(frame)
        return seen

    async def failures(self, message_id: str) -> list[str]:
        """Describe the messages to teammates that became dead letters."""
        from holdfast.queue.event import INBOX
        from holdfast.queue.store import Filter

        root = (await self._read(message_id)).message.id
        dead = await self._store.dead(Filter(queue=INBOX), limit=1000, since_id=root)
        return [
            f"@{letter.target} did not answer: {_name(letter)} {_reason(letter)}"
            for letter in reversed(dead)
            if letter.root_id == root
        ]

    async def _read(self, message_id: str) -> Chain:
        from holdfast.store.chain import read_chain

        chain = await read_chain(self._store, message_id)
        if chain is None:
            raise HoldfastError(f"message {message_id} is gone: it was discarded or forgotten")
        return chain

    async def _wait(self, limit: timedelta) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit.total_seconds()), self._changed:
                await self._changed.wait()

    async def listen(self) -> None:
        """Wake the readers at every signal of the store, for ever."""
        from holdfast.queue.event import OUTBOX

        await self._store.expect(OUTBOX)
        async for _ in self._store.wakeups():
            async with self._changed:
                self._changed.notify_all()


@asynccontextmanager
async def answer_reader(store: Store) -> AsyncIterator[AnswerReader]:
    """Open a reader that the store wakes. Open it before the message is stored."""
    reader = AnswerReader(store)
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(reader.listen())
        try:
            yield reader
        finally:
            listening.cancel()


def _name(event: Event) -> str:
    return f"message {event.message_id} (event {event.id})"


def _reason(event: Event) -> str:
    """Describe the end of a dead letter, and name the command that retries it."""
    from holdfast.queue.event import FinishedEvent

    outcome = event.outcome if isinstance(event, FinishedEvent) else "dead"
    error = short(event.last_error or "no error")
    return f"ended {outcome}: {error}; retry with `holdfast dead retry {event.id}`"
