"""Wake-ups: listeners learn that something became ready in any process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.queue.outcome import Done
from holdfast.queue.store import Filter, Process, Store
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory
from tests.conformance.steps import bury, claim_one, end, message, put


async def queue_of_wakeup(
    listener: Store, clock: Clock, happening: Callable[[], Awaitable[object]]
) -> str:
    """The first wake-up after this happened."""
    # once registered, a store listens for certain
    await listener.register(
        Process(id="listener", host="here", started_at=clock.now, seen_at=clock.now)
    )
    for queue in ("inbox", "memory"):
        await listener.expect(queue)
    wakeups = listener.wakeups()
    first = asyncio.ensure_future(anext(wakeups))
    await asyncio.sleep(0)
    try:
        await happening()
        async with asyncio.timeout(10):
            return await first
    finally:
        first.cancel()


async def put_one(store: Store) -> None:
    await put(store)


async def put_in_transaction(store: Store) -> None:
    async with store.transaction() as tx:
        await store.put([message(lane="a")], tx=tx)


async def release_one(store: Store) -> None:
    await store.release([await claim_one(store, "busy")])


async def retry_one(store: Store) -> None:
    await store.retry(Filter())


async def emit_one(store: Store) -> None:
    await end(store, await claim_one(store, "busy"), Done((message(),)))


HAPPENINGS = [put_one, put_in_transaction, release_one, retry_one, emit_one]


@pytest.mark.parametrize("happening", HAPPENINGS, ids=lambda step: step.__name__)
async def test_what_becomes_ready_in_another_process_wakes_a_listener(
    store: Store,
    another_store: StoreFactory,
    clock: Clock,
    happening: Callable[[Store], Awaitable[None]],
) -> None:
    await put(store, target="busy")
    await bury(store, await put(store))
    other = await another_store()
    assert await queue_of_wakeup(store, clock, lambda: happening(other)) in ("inbox", "")


@pytest.mark.parametrize("happening", HAPPENINGS, ids=lambda step: step.__name__)
async def test_what_becomes_ready_in_this_process_wakes_a_listener(
    store: Store, clock: Clock, happening: Callable[[Store], Awaitable[None]]
) -> None:
    await put(store, target="busy")
    await bury(store, await put(store))
    assert await queue_of_wakeup(store, clock, lambda: happening(store)) in ("inbox", "")


async def test_a_wake_up_that_nobody_waits_for_is_there_at_the_next_look(
    store: Store, another_store: StoreFactory, clock: Clock
) -> None:
    await queue_of_wakeup(store, clock, lambda: put(store))
    wakeups = store.wakeups()
    async with asyncio.timeout(10):
        first = asyncio.ensure_future(anext(wakeups))
        await asyncio.sleep(0)
        await put(store)
        await first
        # the listener is busy now, and not waiting
        await put(store, queue="outbox")
        async for queue in wakeups:
            if queue in ("outbox", ""):
                break


async def test_a_wake_up_names_its_queue(store: Store, clock: Clock) -> None:
    assert await queue_of_wakeup(store, clock, lambda: put(store, queue="memory")) in ("memory", "")
