"""A database with rows in every table, and databases with rows that somebody wrote by hand."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from holdfast.migrations.runner import migrate
from holdfast.settings import sqlite_path
from holdfast.store.transfer.tables import TABLES, Table

NOW = 1_790_000_000_123_457
PERSON = "5e1f8a2c-7b1d-4a58-9d0e-0d0c4a7b6f11"
VECTOR = array("f", [0.1, -2.5e-7, 3.0]).tobytes()
PAYLOAD = {
    "kind": "message",
    "message": 'Grüße 🎉 "quoted" \\ back',
    "number": 12345678901234567890,
    "fraction": 0.1,
    "exponent": 1.5e-7,
    "nested": {"b": [1, None, True], "a": {}},
}

OWN_VALUES: dict[str, dict[str, Any]] = {
    "event_hist": {"outcome": "completed"},
    "agent_message": {"role": "assistant"},
    "step": {"kind": "once", "state": "unknown"},
    "credential": {"kind": "session", "role": "send"},
    "schedule": {"source": "person", "missed": "all"},
    "pause": {"kind": "agent"},
    "observation": {"type": "DERIVED", "confidence": 0.25, "subject_type": "USER"},
}


@contextmanager
def opened(url: str) -> Iterator[sqlite3.Connection]:
    path = sqlite_path(url)
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def fill(url: str, rows: int = 7) -> None:
    """Put rows into every table of a SQLite database, at triggers' back."""
    with opened(url) as connection:
        for name, _, _ in triggers(connection):
            if name.startswith("event_"):
                connection.execute(f"drop trigger {name}")
        connection.execute("begin")
        for table in TABLES:
            insert(connection, table, [row_of(table, number) for number in range(1, rows + 1)])
        _set_counters(connection)
        connection.execute("commit")
    restore_triggers(url)


def row_of(table: Table, number: int) -> tuple[Any, ...]:
    own = OWN_VALUES.get(table.name, {})
    values = {
        column.name: own.get(column.name, _value(table, column.name, column.kind, number))
        for column in table.columns
    }
    if table.name in ("event", "event_hist"):
        _put_in_lane(values, number)
    if table.name == "setting":
        values["key"] = f"default/api:{number}"
    return tuple(values.values())


def _put_in_lane(values: dict[str, Any], number: int) -> None:
    """Three events without a lane, then one lane whose head is not its least id."""
    values["id"] = number if "outcome" not in values else 1000 + number
    values["queue"] = "inbox"
    values["lane"] = None if number <= 3 else "coder/ann"
    values["head"] = int(number <= 3 or number == 5)
    values["claimed"] = json.dumps([NOW + number, NOW - number]) if number % 2 else "[]"
    values["claimed"] = values["claimed"].replace(" ", "")
    values["message_id"] = f"api_{number}"
    values["state"] = None if number % 2 else json.dumps({"parts": [number]})


def _value(table: Table, name: str, kind: str, number: int) -> Any:
    match kind:
        case "int" | "int4":
            return number
        case "flag":
            return number % 2
        case "real":
            return number / 7
        case "moment":
            return None if _is_optional(name, number) else NOW + number
        case "json" | "frames":
            return json.dumps(PAYLOAD | {"at": number}, ensure_ascii=number % 2 == 0)
        case "moments":
            return "[]"
        case "texts":
            return json.dumps(
                [f"api_{number}", "Ü, {}\"'"], ensure_ascii=False, separators=(",", ":")
            )
        case "uuid":
            return PERSON
        case "vector":
            return VECTOR if number % 2 else None
    return f"{table.name}.{name} «{number}» 'quoted'\t\n\\N 🎉"


def _is_optional(name: str, number: int) -> bool:
    optional = ("deleted_at", "expires_at", "used_at", "due_at", "ended_at", "next_at", "last_at")
    return name in optional and number % 2 == 0


def insert(connection: sqlite3.Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    names = ", ".join(f'"{name}"' for name in table.names)
    marks = ", ".join("?" * len(table.columns))
    connection.executemany(f'insert into "{table.name}" ({names}) values ({marks})', rows)


def _set_counters(connection: sqlite3.Connection) -> None:
    connection.execute("update fence set value = 77")
    connection.execute("update observation_version set value = 88")
    for number, name in enumerate(("event", "chat_message", "activity", "audit", "signal")):
        connection.execute("delete from sqlite_sequence where name = ?", (name,))
        connection.execute("insert into sqlite_sequence values (?, ?)", (name, 2000 + number))


def triggers(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    query = "select name, tbl_name, sql from sqlite_master where type = 'trigger' order by name"
    return connection.execute(query).fetchall()


def restore_triggers(url: str) -> None:
    """Create the triggers on events again, as the migrations do."""
    with opened(url) as connection:
        path = Path(str(sqlite_path(url)) + ".fresh")
        migrate(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as other:
            known = {name for name, _, _ in triggers(connection)}
            for name, _, statement in triggers(other):
                if name not in known:
                    connection.execute(statement)
        for suffix in ("", "-wal", "-shm", ".lock", ".lock-next"):
            Path(str(path) + suffix).unlink(missing_ok=True)


def contents(url: str) -> dict[str, list[Any]]:
    """Return all rows of all tables as plain values, JSON parsed, without the state of a move."""
    with opened(url) as connection:
        names = [
            name
            for (name,) in connection.execute(
                "select name from sqlite_master where type = 'table' order by name"
            )
            if not name.startswith(("knowledge_text", "migration", "version"))
        ]
        return {name: sorted(_rows(connection, name), key=repr) for name in names}


def _rows(connection: sqlite3.Connection, name: str) -> list[dict[str, Any]]:
    cursor = connection.execute(f'select * from "{name}"')
    columns = [description[0] for description in cursor.description]
    rows = [dict(zip(columns, map(_plain, row), strict=True)) for row in cursor]
    if name == "knowledge":
        for row in rows:
            del row["id"]
    return [row for row in rows if not str(row.get("key", "")).startswith("move/")]


def _plain(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value
