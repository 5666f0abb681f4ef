"""Results of slow queries are cached; those of quick ones are not."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.api.cached_read import CACHE_FACTOR, CachedRead

QUICK = timedelta(milliseconds=50)
NOW = 1000.0


class Counting:
    """A query that takes some time on its own clock and returns how often it ran."""

    def __init__(self, took: float) -> None:
        self.now = NOW
        self.times = 0
        self.cached = CachedRead(self._find, lambda: self.now, quick=QUICK)
        self._took = took

    async def _find(self) -> int:
        self.times += 1
        await asyncio.sleep(0)
        self.now += self._took
        return self.times


async def test_a_quick_query_runs_each_time() -> None:
    counting = Counting(QUICK.total_seconds() / 2)
    assert [await counting.cached.get() for _ in range(3)] == [1, 2, 3]


async def test_a_slow_result_is_cached_for_twenty_times_as_long_as_it_took() -> None:
    counting = Counting(0.25)
    assert [await counting.cached.get() for _ in range(3)] == [1, 1, 1]
    counting.now = NOW + 0.25 * (1 + CACHE_FACTOR)
    assert await counting.cached.get() == 1
    counting.now += 0.01
    assert await counting.cached.get() == 2


async def test_nothing_is_cached_for_more_than_ten_seconds() -> None:
    counting = Counting(3.0)
    await counting.cached.get()
    counting.now = NOW + 10.01
    assert await counting.cached.get() == 2


async def test_waiting_callers_share_a_query_that_began_after_they_asked() -> None:
    counting = Counting(QUICK.total_seconds() / 2)
    assert await asyncio.gather(*(counting.cached.get() for _ in range(5))) == [1] * 5
    assert await counting.cached.get() == 2


async def test_a_failure_is_not_cached_and_reaches_one_caller_alone() -> None:
    is_away = True

    async def find() -> int:
        nonlocal is_away
        if is_away:
            is_away = False
            raise OSError("away")
        return 7

    cached = CachedRead(find, quick=QUICK)
    away, found = await asyncio.gather(cached.get(), cached.get(), return_exceptions=True)
    assert (type(away), found) == (OSError, 7)
