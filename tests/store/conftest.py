"""Fixtures for tests of one engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.settings import sqlite_path
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import Clock
from holdfast.testing.databases import SQLITE, Databases


@pytest.fixture
def database(databases: Databases) -> Iterator[Path]:
    """The file of a fresh, migrated SQLite database."""
    with databases.fresh(SQLITE) as url:
        yield Path(str(sqlite_path(url)))


@pytest_asyncio.fixture
async def sqlite(database: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(database, clock=clock) as store:
        yield store
