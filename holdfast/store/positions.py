"""Read-your-writes: a change is in the index once its event is no longer live."""

from __future__ import annotations

import asyncio

from holdfast.queue.event import MEMORY
from holdfast.queue.store import Filter, Store

LOOK_EVERY = 0.02


async def gone_within(store: Store, position: int, seconds: float) -> bool:
    """Whether the event at this position has ended well, waiting for it."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while await store.live(position) is not None:
        if loop.time() >= until:
            return False
        await asyncio.sleep(LOOK_EVERY)
    return not await store.dead(Filter(ids=[position], queue=MEMORY), limit=1)
