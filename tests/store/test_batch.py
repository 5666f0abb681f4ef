"""Requests that wait together share a call; none waits for ever."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import HoldfastError
from holdfast.store.postgres.batch import Batch


async def test_a_batch_that_ends_fails_all_requests_that_wait() -> None:
    sent: list[list[int]] = []

    async def send(items: list[int]) -> list[int]:
        sent.append(items)
        return await asyncio.Future[list[int]]()

    batch = Batch(send, limit=2)
    alone = asyncio.create_task(batch.add([0]))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(batch.add([number])) for number in (1, 2, 3)]
    running = asyncio.create_task(batch.run())
    await asyncio.sleep(0)
    alone.cancel()
    while len(sent) < 2:  # noqa: ASYNC110 - the batch has no signal
        await asyncio.sleep(0)
    assert sent == [[0], [1, 2]]
    running.cancel()
    async with asyncio.timeout(10):
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [HoldfastError] * 3
    with pytest.raises(HoldfastError, match="closed"):
        await batch.add([4])
