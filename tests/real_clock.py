"""Fixtures for tests on the real clock: SQLite, unless a test asks for further engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.queue.store import Store
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.testing.databases import SQLITE
from tests.steps import Proxy


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", SQLITE))


@pytest_asyncio.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with open_store(database_url) as store:
        yield store


@pytest.fixture
def proxy(store: Store) -> Proxy:
    """Return the store behind a proxy that can inject faults."""
    return Proxy(store)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database=database_url)
