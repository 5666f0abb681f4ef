"""Shells on each kind of store, and one without a database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.databases import Databases
from holdfast.testing.fixtures import available
from tests.cli.shell import Shell


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """A shell whose database is the default one, not created yet."""
    return Shell(tmp_path)


@pytest.fixture
def cold(tmp_path: Path) -> Shell:
    """The same, but each start imports everything."""
    return Shell(tmp_path, cold=True)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, databases: Databases) -> Iterator[str]:
    """A fresh, migrated database on either kind of store."""
    with available(request.param, databases.fresh(request.param)) as url:
        yield url


@pytest.fixture
def shell(tmp_path: Path, url: str) -> Shell:
    return Shell(tmp_path, url)


@pytest.fixture
def postgres(databases: Databases) -> Iterator[str]:
    with available("postgres", databases.fresh("postgres")) as url:
        yield url
