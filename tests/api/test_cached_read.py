"""Answers that take long are shared, and those that do not are always new."""

from __future__ import annotations

import asyncio

from holdfast.api.cached_read import QUICK, REST, CachedRead

NOW = 1000.0


class Counting:
    """Takes so long on a clock of its own; says the how-many-th time it was asked."""

    def __init__(self, took: float) -> None:
        self.now = NOW
        self.times = 0
        self.shared = CachedRead(self._find, lambda: self.now)
        self._took = took

    async def _find(self) -> int:
        self.times += 1
        await asyncio.sleep(0)
        self.now += self._took
        return self.times


async def test_what_is_found_quickly_is_found_anew_each_time() -> None:
    counting = Counting(QUICK.total_seconds() / 2)
    assert [await counting.shared.get() for _ in range(3)] == [1, 2, 3]


async def test_what_took_long_is_told_again_for_twenty_times_as_long() -> None:
    counting = Counting(0.25)
    assert [await counting.shared.get() for _ in range(3)] == [1, 1, 1]
    counting.now = NOW + 0.25 * (1 + REST)
    assert await counting.shared.get() == 1
    counting.now += 0.01
    assert await counting.shared.get() == 2


async def test_nothing_is_told_for_more_than_ten_seconds() -> None:
    counting = Counting(3.0)
    await counting.shared.get()
    counting.now = NOW + 10.01
    assert await counting.shared.get() == 2


async def test_those_who_wait_share_what_was_begun_after_they_asked() -> None:
    counting = Counting(QUICK.total_seconds() / 2)
    assert await asyncio.gather(*(counting.shared.get() for _ in range(5))) == [1] * 5
    assert await counting.shared.get() == 2


async def test_a_failure_is_the_askers_alone_and_nothing_is_kept_of_it() -> None:
    is_away = True

    async def find() -> int:
        nonlocal is_away
        if is_away:
            is_away = False
            raise OSError("away")
        return 7

    shared = CachedRead(find)
    away, found = await asyncio.gather(shared.get(), shared.get(), return_exceptions=True)
    assert (type(away), found) == (OSError, 7)
