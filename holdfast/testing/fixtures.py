"""A pytest plugin: a store on every engine, with a clock that the test moves.

Use it by `pytest_plugins = ["holdfast.testing.fixtures"]`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager

import pytest
import pytest_asyncio

from holdfast.chat import ChatStore
from holdfast.store import open_store
from holdfast.testing.clock import Clock
from holdfast.testing.databases import ENGINES, POSTGRES_ENGINES, Databases
from holdfast.testing.servers import Unavailable

StoreFactory = Callable[[], Awaitable[ChatStore]]
OPTIONAL_ENGINES = {"postgres15"}


@pytest.fixture
def clock() -> Clock:
    """The clock of all stores of this test."""
    return Clock()


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """The source of fresh databases; its servers run until the session ends."""
    databases = Databases()
    yield databases
    databases.close()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine in turn."""
    return str(request.param)


@pytest.fixture(params=POSTGRES_ENGINES)
def postgres_engine(request: pytest.FixtureRequest) -> str:
    """Each PostgreSQL in turn, for tests of SQL."""
    return str(request.param)


@pytest.fixture
def database_url(engine: str, databases: Databases) -> Iterator[str]:
    """A fresh, migrated database of the engine."""
    with available(engine, databases.fresh(engine)) as url:
        yield url


@pytest.fixture
def empty_url(engine: str, databases: Databases) -> Iterator[str]:
    """A database of the engine without our schema."""
    with available(engine, databases.empty(engine)) as url:
        yield url


@pytest.fixture
def postgres_url(postgres_engine: str, databases: Databases) -> Iterator[str]:
    """A fresh, migrated database on each PostgreSQL."""
    with available(postgres_engine, databases.fresh(postgres_engine)) as url:
        yield url


@pytest_asyncio.fixture
async def another_store(database_url: str, clock: Clock) -> AsyncIterator[StoreFactory]:
    """Open a further store on the same database and clock, as another process would."""
    async with AsyncExitStack() as stack:

        async def open_another() -> ChatStore:
            return await stack.enter_async_context(open_store(database_url, clock=clock))

        yield open_another


@pytest_asyncio.fixture
async def store(another_store: StoreFactory) -> ChatStore:
    """The store under test."""
    return await another_store()


@contextmanager
def available(engine: str, database: AbstractContextManager[str]) -> Iterator[str]:
    """Skip the test if this machine cannot run the engine. In CI, fail instead."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(database)
        except Unavailable as reason:
            if os.environ.get("CI") == "true" and engine not in OPTIONAL_ENGINES:
                raise pytest.fail.Exception(f"{engine}: {reason}", pytrace=False) from None
            raise pytest.skip.Exception(f"{engine}: {reason}") from None
        yield url
