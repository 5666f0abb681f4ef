"""A process that puts on command, with wake-ups after the commit, inside of it, or without any."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from unittest.mock import patch

from bench.workload import Feed, Shape
from holdfast.chat import ChatStore
from holdfast.queue.store import Process
from holdfast.store import open_store
from holdfast.store.postgres import store as postgres_store
from holdfast.store.postgres.waker import Waker

INSIDE = "select agent.put_one(%s, %s, %s, %s, %s, %s, %s, %s), false"
FEED_SIZE = 100_000_000


@contextmanager
def waking(how: str) -> Iterator[None]:
    """Send wake-ups `after` the commit, `inside` of it as release 0.7.0 did, or `not` at all."""
    add = Waker.add if how == "after" else _ignore
    statement = INSIDE if how == "inside" else postgres_store.STORE_ONE
    with patch.object(Waker, "add", add), patch.object(postgres_store, "STORE_ONE", statement):
        yield


def _ignore(waker: Waker, queues: Iterable[str]) -> None:
    """Send no wake-up."""


async def put(store: ChatStore, feed: Feed, count: int) -> None:
    for new in feed.take(count):
        await store.put([new])


async def open_stores(stack: AsyncExitStack, url: str, name: str, count: int) -> list[ChatStore]:
    """Open stores with the sessions of as many processes."""
    stores = []
    for number in range(count):
        store = await stack.enter_async_context(open_store(url, pool_size=1))
        now = await store.now()
        process = Process(id=f"{name}-{number}", host="bench", started_at=now, seen_at=now)
        await store.register(process)
        stores.append(store)
    return stores


async def main(url: str, number: int, stores: int, callers: int) -> None:
    """Read lines like "after 200" and put that many messages. Answers with the seconds it took."""
    feed = Feed(Shape.MANY, number * FEED_SIZE)
    async with AsyncExitStack() as stack:
        opened = await open_stores(stack, url, f"putter-{number}", stores)
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            how, count = line.split()
            share = int(count) // (stores * callers)
            begun = time.perf_counter()
            with waking(how):
                calls = [put(store, feed, share) for store in opened for _ in range(callers)]
                await asyncio.gather(*calls)
            print(time.perf_counter() - begun, flush=True)


if __name__ == "__main__":
    given_url, *numbers = sys.argv[1:]
    asyncio.run(main(given_url, *map(int, numbers)))
