"""Caches results of slow queries, and shares one query among all callers that wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Generic, TypeVar

T = TypeVar("T")

CACHE_FACTOR = 20
"""A result is valid for this many times the duration of its query.

So the query uses at most a twentieth of the time."""
MAX_AGE = timedelta(seconds=10)


class CachedRead(Generic[T]):
    """One cached query, such as an exact count over a large table."""

    def __init__(
        self,
        find: Callable[[], Awaitable[T]],
        clock: Callable[[], float] = time.monotonic,
        *,
        quick: timedelta,
    ) -> None:
        """Cache `find`, unless it takes less than `quick`."""
        self._find = find
        self._quick = quick.total_seconds()
        self._clock = clock
        self._lock = asyncio.Lock()
        self._result: T | None = None
        self._good_until = -1.0
        """Also valid for callers that asked before this query started."""

    async def get(self) -> T:
        asked_at = self._clock()
        async with self._lock:
            if self._result is None or asked_at > self._good_until:
                begun_at = self._clock()
                self._result = await self._find()
                self._good_until = begun_at + self._age_limit(self._clock() - begun_at)
            return self._result

    def _age_limit(self, seconds: float) -> float:
        """Return how long to keep a result that took so many seconds to find."""
        longest = MAX_AGE.total_seconds()
        return min(seconds * (1 + CACHE_FACTOR), longest) if seconds > self._quick else 0
