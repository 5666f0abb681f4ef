"""Plain SQL for tests, as a person would type it into psql."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import sql as compose
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

Connection = psycopg.Connection[dict[str, Any]]


@contextmanager
def connect(url: str, *, autocommit: bool = True) -> Iterator[Connection]:
    with psycopg.connect(url, autocommit=autocommit, row_factory=dict_row) as connection:
        # a test that waits for a lock for long is a test that hangs
        connection.execute("set lock_timeout = '10s'")
        if not autocommit:
            connection.commit()
        yield connection


def column(sql: Connection, query: LiteralString, values: Sequence[Any] = ()) -> list[Any]:
    """The first column of all rows."""
    return [next(iter(row.values())) for row in sql.execute(query, values)]


def value(sql: Connection, query: LiteralString, values: Sequence[Any] = ()) -> Any:
    [found] = column(sql, query, values)
    return found


def insert(sql: Connection, lane: str | None = None, text: str = "hello", **columns: Any) -> int:
    """A plain insert, as any client would write it."""
    given = {"lane": lane, "event": Jsonb({"text": text}), **columns}
    names = compose.SQL(", ").join(map(compose.Identifier, given))
    marks = compose.SQL(", ").join([compose.Placeholder()] * len(given))
    query = compose.SQL("insert into agent.event ({}) values ({}) returning id").format(
        names, marks
    )
    row = sql.execute(query, list(given.values())).fetchone()
    assert row is not None
    return int(row["id"])


def claim(sql: Connection) -> list[int]:
    """One event, by the classical function; its id, if there is one."""
    return column(sql, "select id from agent.claim_event()")


def drain(sql: Connection) -> list[int]:
    """Claim and delete one event after the other; ids in the order they came."""
    order: list[int] = []
    while claimed := claim(sql):
        order += claimed
        sql.execute("select agent.delete_event(%s)", claimed)
    return order


def headless(sql: Connection) -> list[Any]:
    """Lanes that nobody would ever work."""
    return column(
        sql,
        "select lane from agent.event where lane is not null"
        " group by queue, lane having not bool_or(head)",
    )
