"""Wake-ups inside of a process: from a store to the consumers of a queue, which wait for them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Literal

Reason = Literal["triggered", "due", "timeout"]


class Wake:
    """A level-triggered signal: set while its owner is busy, it ends the owner's next wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the owner, now or when it next waits."""
        self._event.set()

    async def wait(
        self, *, poll: timedelta, jitter: timedelta = timedelta(0), due_in: timedelta | None = None
    ) -> Reason:
        """Wait for the signal, at most until `due_in` or the poll interval ± jitter.

        Returns why the wait ended."""
        seconds = poll.total_seconds() + random.uniform(-1, 1) * jitter.total_seconds()
        due = due_in is not None and due_in.total_seconds() < seconds
        if due_in is not None and due:
            seconds = due_in.total_seconds()
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._event.wait()
        except TimeoutError:
            return "due" if due else "timeout"
        self._event.clear()
        return "triggered"


class Wakeups:
    """Tells listeners which queues have something new.

    Level-triggered: a queue named while a listener is busy is delivered once it looks again."""

    def __init__(self) -> None:
        self._listeners: set[_Listener] = set()

    def ring(self, queue: str) -> None:
        for listener in self._listeners:
            if not queue or listener.queue in (None, queue):
                listener.rung.add(queue)
                listener.arrived.set()

    async def listen(self, queue: str | None = None) -> AsyncIterator[str]:
        listener = _Listener(queue)
        self._listeners.add(listener)
        try:
            while True:
                await listener.arrived.wait()
                listener.arrived.clear()
                while listener.rung:
                    yield listener.rung.pop()
        finally:
            self._listeners.discard(listener)


class _Listener:
    def __init__(self, queue: str | None) -> None:
        self.queue = queue
        self.rung: set[str] = set()
        self.arrived = asyncio.Event()
