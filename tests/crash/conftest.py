"""Crash tests run on both stores, each with a pool of worker processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.queue.store import Store
from holdfast.store import open_store
from holdfast.testing.servers import Unavailable
from tests.crash.pool import WorkerPool
from tests.private_server import Server, private_server

GRACE = """
do $$ begin
    execute format('alter database %I set holdfast.restart_grace = ''0s''', current_database());
end $$
"""


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pool(database_url: str, tmp_path: Path) -> Iterator[WorkerPool]:
    with WorkerPool(database_url, tmp_path) as pool:
        if pool.is_postgres:
            # Without this, a server that just started declares nobody dead for half a minute.
            pool.write(GRACE)
        yield pool


@pytest_asyncio.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with open_store(database_url) as store:
        yield store


@pytest.fixture
def server() -> Iterator[Server]:
    try:
        with private_server() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def private_pool(server: Server, tmp_path: Path) -> Iterator[WorkerPool]:
    with WorkerPool(server.url, tmp_path) as pool:
        yield pool
