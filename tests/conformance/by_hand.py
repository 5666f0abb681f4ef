"""Rows that somebody writes into the tables by hand, past every check of ours."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from urllib.parse import urlsplit

import psycopg

DEEP = "[" * 300 + "]" * 300
GOOD = {"event": """'{"text": "good"}'""", "lane": "'good'"}

POSTGRES_ROWS: dict[str, dict[str, str]] = {
    "vt infinity": {"vt": "'infinity'"},
    "vt -infinity": {"vt": "'-infinity'"},
    "vt in year 10000": {"vt": "'10000-01-01'"},
    "event_ts before Christ": {"event_ts": "'4000-01-01 BC'"},
    "event_ts infinity": {"event_ts": "'infinity'"},
    "event_ts -infinity": {"event_ts": "'-infinity'"},
    "created_at infinity": {"created_at": "'infinity'"},
    "claimed with null": {"claimed": "'{NULL}'"},
    "claimed infinity": {"claimed": "'{infinity}'"},
    "claimed nested": {"claimed": "'{{2024-01-01,2024-01-02}}'"},
    "attempts negative": {"attempts": "-7"},
    "hops huge": {"hops": "2147483647"},
}
"""Rows that the checks of PostgreSQL refuse."""

SQLITE_ROWS: dict[str, dict[str, str]] = {
    "vt 2^63-1": {"vt": "9223372036854775807"},
    "vt -2^63": {"vt": "-9223372036854775808"},
    "event_ts 2^63-1": {"event_ts": "9223372036854775807"},
    "created_at 2^63-1": {"created_at": "9223372036854775807"},
    "claimed no list": {"claimed": "'{}'"},
    "attempts negative": {"attempts": "-7"},
    "hops huge": {"hops": "9223372036854775807"},
}
"""Rows that the trigger of SQLite refuses."""

ODD_PAYLOADS: dict[str, dict[str, str]] = {
    "event null": {"event": "'null'"},
    "event a list": {"event": "'[1]'"},
    "event a text": {"""event""": """'"hello"'"""},
    "event nested deeply": {"event": f"'{DEEP}'"},
    "event a huge number": {"event": f"""'{{"n": {"1" * 5000}}}'"""},
    "state a list": {"state": "'[1]'"},
}
"""Rows that every engine stores, and nobody can work on."""

BROKEN_SQLITE_ROWS: dict[str, dict[str, str]] = {
    "event no JSON": {"event": "'{no json'"},
    "event with separators": {"event": "'{}' || char(30) || '{}'"},
    "claimed no JSON": {"claimed": "'[1,'"},
    "claimed of texts": {"claimed": """'["yesterday"]'"""},
    "claimed of null": {"claimed": "'[null]'"},
    "state no JSON": {"state": "'{'"},
    "lane no UTF-8": {"lane": "cast(x'ff' as text)"},
}
"""Rows that a shell writes with `pragma ignore_check_constraints = on`."""


def insert(url: str, columns: dict[str, str], *, checked: bool = True) -> int:
    """Insert a live event by hand, with or without the checks. Returns its id."""
    given = {"event": """'{"text": "bad"}'""", **columns}
    names, values = ", ".join(given), ", ".join(given.values())
    if url.startswith("sqlite"):
        with closing(
            sqlite3.connect(urlsplit(url).path, isolation_level=None, timeout=30)
        ) as shell:
            if not checked:
                shell.execute("drop trigger if exists event_readable")
                shell.execute("pragma ignore_check_constraints = on")
            [[id_]] = shell.execute(
                f"insert into event ({names}) values ({values}) returning id"
            ).fetchall()
            return int(id_)
    with psycopg.connect(url, autocommit=True) as psql:
        if not checked:
            for check in ("moments", "claimed", "numbers"):
                _relax(psql, f"event_{check}_readable")
        [[id_]] = psql.execute(
            f"insert into agent.event ({names}) values ({values}) returning id".encode()
        ).fetchall()
        if not checked:
            for check, body in _relaxed.items():
                psql.execute(
                    f"alter table agent.event add constraint {check} {body} not valid".encode()
                )
        return int(id_)


_relaxed: dict[str, str] = {}


def _relax(psql: psycopg.Connection[tuple[object, ...]], check: str) -> None:
    """Drop a check; it comes back for new rows alone."""
    query = "select pg_get_constraintdef(oid) from pg_constraint where conname = %s"
    [[body]] = psql.execute(query, [check]).fetchall()
    _relaxed[check] = str(body).removesuffix(" NOT VALID")
    psql.execute(f"alter table agent.event drop constraint {check}".encode())


def execute(url: str, sqlite_statement: str, postgres_statement: str) -> None:
    """Run one statement by hand."""
    if url.startswith("sqlite"):
        with closing(
            sqlite3.connect(urlsplit(url).path, isolation_level=None, timeout=30)
        ) as shell:
            shell.execute("pragma ignore_check_constraints = on")
            shell.execute(sqlite_statement)
    else:
        with psycopg.connect(url, autocommit=True) as psql:
            psql.execute(postgres_statement.encode())
