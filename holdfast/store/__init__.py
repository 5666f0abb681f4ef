"""The engines of the Store protocol, which keep events in a database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.chat import ChatStore as Store
from holdfast.queue.store import Clock
from holdfast.settings import sqlite_path
from holdfast.store.instrumented import InstrumentedStore, OnPut
from holdfast.store.watch import Watch

__all__ = ["Store", "open_store"]


@asynccontextmanager
async def open_store(
    url: str,
    *,
    direct_url: str | None = None,
    clock: Clock | None = None,
    pool_size: int = 8,
    on_put: OnPut | None = None,
    watch: Watch | None = None,
) -> AsyncIterator[Store]:
    """Open the store of a database URL; the database must have been migrated.

    `on_put` is called with the events and ids of each put of this process, after its commit.
    `watch` decides which processes are dead."""
    path = sqlite_path(url)
    # Imported here, so that a machine without one of the drivers can use the other.
    if path is not None:
        from holdfast.store.sqlite.store import SqliteStore

        async with SqliteStore(path, clock=clock, watch=watch) as store:
            yield InstrumentedStore(store, on_put)
    else:
        from holdfast.store.postgres.store import PostgresStore

        async with PostgresStore(
            url, direct_url=direct_url, clock=clock, pool_size=pool_size, watch=watch
        ) as store:
            yield InstrumentedStore(store, on_put)
