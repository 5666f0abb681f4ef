"""Answers that take the database long: asked for once for all who wait, and told again for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Generic, TypeVar

T = TypeVar("T")

QUICK = timedelta(milliseconds=50)
"""What is found within this time is never told again."""
REST = 20
"""How many times as long as it took to find it an answer is told: so a twentieth of the time is spent on it."""
OLDEST = timedelta(seconds=10)


class CachedRead(Generic[T]):
    """To count exactly costs more the more there is, or else every turn would pay for it."""

    def __init__(
        self, find: Callable[[], Awaitable[T]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._find = find
        self._clock = clock
        self._lock = asyncio.Lock()
        self._found: T | None = None
        self._good_until = -1.0
        """Good is also what was begun to be found after one had asked."""

    async def get(self) -> T:
        asked_at = self._clock()
        async with self._lock:
            if self._found is None or asked_at > self._good_until:
                begun_at = self._clock()
                self._found = await self._find()
                took = self._clock() - begun_at
                again = (
                    min(took * (1 + REST), OLDEST.total_seconds())
                    if took > QUICK.total_seconds()
                    else 0
                )
                self._good_until = begun_at + again
            return self._found
