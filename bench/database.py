"""Open a measured database, through our store and beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import psycopg

from bench.engine import Engine, Raw
from bench.workload import Shape
from holdfast.settings import sqlite_path
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


def read_one(url: str, query: str, **values: object) -> Any:
    """Return the first value of a query's first row, on either engine."""
    path = sqlite_path(url)
    if path is not None:
        with closing(sqlite3.connect(path)) as database:
            return database.execute(query, values).fetchone()[0]
    with psycopg.connect(url, autocommit=True) as connection:
        return (connection.execute(query, values or None).fetchone() or (None,))[0]
