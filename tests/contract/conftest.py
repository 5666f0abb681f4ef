"""Sessions at a fresh database of each PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.psql import Connection, connect


@pytest.fixture
def sql(postgres_url: str) -> Iterator[Connection]:
    with connect(postgres_url) as connection:
        yield connection


@pytest.fixture
def other(postgres_url: str) -> Iterator[Connection]:
    """Another session, in a transaction from its first statement on."""
    with connect(postgres_url, autocommit=False) as connection:
        yield connection
