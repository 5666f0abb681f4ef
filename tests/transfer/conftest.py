"""A filled SQLite database, and new ones to move to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.testing.databases import Databases
from holdfast.testing.fixtures import available
from tests.transfer.filling import fill

NewDatabase = Callable[[str], str]


@pytest.fixture
def new_database(databases: Databases, tmp_path: Path) -> Iterator[NewDatabase]:
    """Return the URL of a database without our schema, on the engine that is asked for."""
    with ExitStack() as stack:
        yield lambda engine: stack.enter_context(available(engine, databases.empty(engine)))


@pytest.fixture
def filled(databases: Databases) -> Iterator[str]:
    """A SQLite database with rows in every table."""
    with databases.fresh("sqlite") as url:
        fill(url)
        yield url
