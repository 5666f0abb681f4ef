"""A folder of tiny scripts, and queries that do not use the migration runner."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.migrations.runner import Report, migrate
from holdfast.settings import sqlite_path
from holdfast.testing.databases import Databases
from holdfast.testing.fixtures import available

Query = Callable[[str], list[tuple[Any, ...]]]


class Scripts:
    """A folder of scripts for both engines; a body is written for SQLite and PostgreSQL alike."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def incremental(self, name: str, body: str) -> None:
        self._write("incremental", name, body)
        self._write("sqlite", name, body.replace("agent.", ""))

    def idempotent(self, name: str, body: str) -> None:
        self._write("idempotent", name, body)

    def migrate(self, url: str, version: str = "1.0", **options: Any) -> Report:
        return migrate(url, scripts=self.folder, version=version, **options)

    def _write(self, folder: str, name: str, body: str) -> None:
        (self.folder / folder).mkdir(exist_ok=True)
        (self.folder / folder / name).write_text(body)


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    """A folder with one incremental script."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    scripts = Scripts(folder)
    scripts.incremental(
        "000-first.sql", "create table agent.first (id int);\ninsert into agent.first values (1);"
    )
    return scripts


@pytest.fixture
def postgres(databases: Databases) -> Iterator[str]:
    """An empty database on one PostgreSQL, for tests that do not depend on its release."""
    with available("postgres", databases.empty("postgres")) as url:
        yield url


@pytest.fixture
def query(empty_url: str) -> Query:
    """Query the database under test; table names with the schema agent work on both engines."""
    return lambda statement: ask(empty_url, statement)


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    path = sqlite_path(url)
    if path is None:
        # A superfluous lock in the runner fails the test here instead of hanging it.
        with psycopg.connect(url, autocommit=True, options="-c lock_timeout=5s") as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        return database.execute(statement.replace("agent.", "")).fetchall()


def tables(url: str) -> set[str]:
    """Return the names of our tables and schemas; none for a database never migrated."""
    path = sqlite_path(url)
    if path is None:
        names = "select nspname::text from pg_namespace where nspname = 'agent'"
        return {
            name
            for (name,) in ask(
                url, f"{names} union select tablename from pg_tables where schemaname = 'agent'"
            )
        }
    return (
        {name for (name,) in ask(url, "select name from sqlite_master")} if path.exists() else set()
    )
