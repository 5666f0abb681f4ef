"""Convert a plain history to a TimescaleDB hypertable while workers go on."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from holdfast.errors import MigrationError
from holdfast.migrations.postgres import LOCK_KEY, clear_errors, connect

_FACTS = """
select agent.history_is_hypertable(), agent.can_have_timescale()
    , exists (select from pg_catalog.pg_extension where extname = 'timescaledb')
    , pg_catalog.to_regclass('agent.event_hist_moved') is not null
"""

Connection = psycopg.Connection[tuple[object, ...]]


def use_timescale(url: str, on_step: Callable[[str], None]) -> bool:
    """Convert history to a hypertable. Returns False if it is one already.

    An aborted run can be repeated.

    Finished events are moved aside in small transactions and moved back afterwards, so that the
    table is locked only for the few rows that are left. Meanwhile they are missing from history;
    dead letters are not."""
    with connect(url) as connection, clear_errors():
        row = connection.execute(_FACTS).fetchone()
        assert row is not None
        is_hypertable, can_be, has_extension, was_aborted = row
        if is_hypertable and not was_aborted:
            return False
        if not is_hypertable and not (can_be or has_extension):
            raise MigrationError(
                "the server does not load TimescaleDB: install it, add timescaledb to "
                "shared_preload_libraries, restart the server and try again"
            )
        if connection.execute("select pg_try_advisory_lock(%s)", (LOCK_KEY,)).fetchone() != (True,):
            raise MigrationError("another migration is running: try again when it has ended")
        if not is_hypertable:
            _convert(connection, on_step)
        _move(connection, "back", on_step)
        connection.execute("drop table agent.event_hist_moved")
        return True


def _convert(connection: Connection, on_step: Callable[[str], None]) -> None:
    # Create the extension first: if the role may not do so, nothing has changed yet.
    with connection.transaction():
        connection.execute("create extension if not exists timescaledb schema public")
        connection.execute(
            "create table if not exists agent.event_hist_moved (like agent.event_hist)"
        )
    _move(connection, "aside", on_step)
    on_step("making history a hypertable")
    connection.execute("select agent.history_to_hypertable()")


def _move(connection: Connection, where: str, on_step: Callable[[str], None]) -> None:
    moved = 0
    while batch := _number(
        connection.execute("select agent.move_history(%s)", (where == "aside",)).fetchone()
    ):
        moved += batch
        on_step(f"moved {moved} finished events {where}")


def _number(row: tuple[object, ...] | None) -> int:
    return int(str(row[0])) if row else 0
