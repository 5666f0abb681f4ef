"""Shared settings, limits of targets, and each conversation's choice of a default agent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from sqlite3 import Connection
from typing import Any

from holdfast.store.payload import dump
from holdfast.store.readable import setting_of
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.rows import MICROSECOND
from holdfast.store.sqlite.writer import Writing

SQL = load()


def read_setting(connection: Connection, key: str) -> Any:
    row = connection.execute(SQL["setting"], {"key": key}).fetchone()
    return None if row is None else setting_of(row[0])


def set_setting(db: Writing, key: str, value: Any) -> None:
    """Store a value; None removes it."""
    if value is None:
        db.connection.execute(SQL["remove_setting"], {"key": key})
    else:
        db.connection.execute(SQL["set_setting"], {"key": key, "value": dump(value)})


def set_limit(db: Writing, queue: str, target: str, running: int | None) -> None:
    """Limit the running turns of a target; None lifts the limit."""
    name = "lift_limit" if running is None else "set_limit"
    db.connection.execute(SQL[name], {"queue": queue, "target": target, "running": running})
    db.ready.add(queue)


def mark_choice_used(db: Writing, key: str) -> None:
    db.connection.execute(SQL["mark_choice_used"], {"key": key})


def prune_choices(db: Writing, keep: timedelta | None, most: int, channels: Sequence[str]) -> int:
    """Delete choices unused for longer than `keep`, and all but the `most` recent of a channel.

    Returns their number. A choice counts as unused from the first prune after its last use."""
    db.connection.execute(SQL["mark_choices_unused"], {"now": db.now})
    before = None if keep is None else db.now - keep // MICROSECOND
    params = {"before": before, "most": most, "channels": dump(list(channels))}
    return db.connection.execute(SQL["prune_choices"], params).rowcount
