"""The engine behind a store, for parts that run statements of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.queue.store import Store

if TYPE_CHECKING:
    from holdfast.store.postgres.store import PostgresStore
    from holdfast.store.sqlite.store import SqliteStore

# Engines are imported here, so that a machine without the driver of one can use the other.


def is_sqlite(store: Store) -> bool:
    """Return whether SQLite is the engine of a store."""
    from holdfast.store.sqlite.store import SqliteStore

    return isinstance(store.engine, SqliteStore)


def sqlite_engine(store: Store) -> SqliteStore:
    """Return the SQLite engine of a store. Raises HoldfastError if it has another one."""
    from holdfast.store.sqlite.store import SqliteStore

    if isinstance(store.engine, SqliteStore):
        return store.engine
    raise HoldfastError(f"{type(store.engine).__name__} is not a SQLite store")


def postgres_engine(store: Store) -> PostgresStore:
    """Return the PostgreSQL engine of a store. Raises HoldfastError if it has another one."""
    from holdfast.store.postgres.store import PostgresStore

    if isinstance(store.engine, PostgresStore):
        return store.engine
    raise HoldfastError(f"{type(store.engine).__name__} is not a PostgreSQL store")
