"""Wake-ups inside of a process: listeners learn that a queue has something new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator


class Wakeups:
    """Level-triggered: a queue named while a listener is busy is delivered once it looks again."""

    def __init__(self) -> None:
        self._listeners: set[_Listener] = set()

    def ring(self, queue: str) -> None:
        for listener in self._listeners:
            listener.rung.add(queue)
            listener.arrived.set()

    async def listen(self) -> AsyncIterator[str]:
        listener = _Listener()
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
    def __init__(self) -> None:
        self.rung: set[str] = set()
        self.arrived = asyncio.Event()
