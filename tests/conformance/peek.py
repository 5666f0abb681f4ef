"""Read and delete rows of the tables directly, past the store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg
from psycopg.rows import dict_row

TABLES = ("event", "event_hist", "message_key", "target_limit", "step", "signal")
TIMES = ("event_ts", "vt", "finished_at")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Seen = dict[int, dict[str, Any]]


class Peek(Protocol):
    """One database, seen from outside."""

    def rows(self, table: str) -> Seen:
        """All rows of event or event_hist by id, in Python's types."""

    def clear(self) -> None:
        """No events, no steps, no keys, no limits; what numbers were used stays used."""


@contextmanager
def peek(url: str) -> Iterator[Peek]:
    if url.startswith("sqlite"):
        with closing(
            sqlite3.connect(urlsplit(url).path, isolation_level=None, timeout=30)
        ) as sqlite:
            sqlite.row_factory = sqlite3.Row
            yield SqlitePeek(sqlite)
    else:
        with psycopg.connect(url, autocommit=True, row_factory=dict_row) as postgres:
            yield PostgresPeek(postgres)


class PostgresPeek:
    def __init__(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        self._connection = connection

    def rows(self, table: str) -> Seen:
        found = self._connection.execute(f"select * from agent.{table}".encode())
        return {row["id"]: {**row, "claimed": tuple(row["claimed"])} for row in found}

    def clear(self) -> None:
        with self._connection.transaction():
            for table in TABLES:
                self._connection.execute(f"delete from agent.{table}".encode())


class SqlitePeek:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, table: str) -> Seen:
        return {
            row["id"]: _from_sqlite(dict(row))
            for row in self._connection.execute(f"select * from {table}")
        }

    def clear(self) -> None:
        self._connection.execute("begin immediate")
        for table in TABLES:
            self._connection.execute(f"delete from {table}")
        self._connection.execute("commit")


def _from_sqlite(row: dict[str, Any]) -> dict[str, Any]:
    times = {name: _moment(row[name]) for name in TIMES if name in row}
    state = row["state"] and json.loads(row["state"])
    claimed = tuple(_moment(moment) for moment in json.loads(row["claimed"]))
    return {
        **row,
        **times,
        "claimed": claimed,
        "state": state,
        "event": json.loads(row["event"]),
        "head": bool(row["head"]),
    }


def _moment(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)
