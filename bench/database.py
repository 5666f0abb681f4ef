"""Open a measured database, through our store and beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from bench.engine import Engine, Raw
from bench.workload import Shape
from holdfast.store import Store, open_store


@asynccontextmanager
async def with_raw(engine: Engine) -> AsyncIterator[tuple[Store, Raw]]:
    """Yield a store without events, and the raw baselines on the same server or disk."""
    with engine.fresh() as url, closing(engine.raw(url)) as raw:
        async with open_store(url) as store:
            yield store, raw


@asynccontextmanager
async def with_backlog(engine: Engine, shape: Shape, count: int) -> AsyncIterator[Store]:
    """Yield a store with a backlog of waiting events."""
    with engine.fresh() as url:
        engine.load(url, shape, count)
        async with open_store(url) as store:
            yield store
