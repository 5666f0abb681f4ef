"""What is read from SQLite without the writer: counts, settings, processes, histories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from sqlite3 import Connection, Error
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.event import AgentMessage, ChatMessage, Event
from holdfast.store.base import Count, Process
from holdfast.store.payload import dump
from holdfast.store.queries import load
from holdfast.store.sqlite_rows import agent_message_of, chat_message_of, moment, process_of
from holdfast.store.sqlite_turns import events
from holdfast.store.sqlite_writer import connect, translated

SQL = load("sqlite")

TABLES = 4


def require_schema(path: Path) -> None:
    """Refuse a database that was never migrated; it is not created here either."""
    if not path.exists():
        raise HoldfastError(f"there is no database at {path}; run `holdfast migrate` first")
    try:
        connection = connect(path, read_only=True)
        [tables] = connection.execute(SQL["migrated"]).fetchone()
        connection.close()
    except Error as error:
        raise translated(error, path) from error
    if tables < TABLES:
        raise HoldfastError(f"the database {path} has no Holdfast tables; run `holdfast migrate` first")


def next_due(connection: Connection, queue: str, targets: Sequence[str]) -> datetime | None:
    [vt] = connection.execute(SQL["next_due"], {"queue": queue, "targets": dump(list(targets))}).fetchone()
    return None if vt is None else moment(vt)


def leased(connection: Connection, now: int, queue: str) -> list[Event]:
    [ids] = connection.execute(SQL["leased"], {"queue": queue, "now": now}).fetchone()
    return events(connection, json.loads(ids))


def counts(connection: Connection, now: int) -> list[Count]:
    return [
        Count(queue=queue, target=target, ready=ready, delayed=delayed, queued=queued, leased=leased)
        for queue, target, ready, delayed, queued, leased in connection.execute(SQL["counts"], {"now": now})
    ]


def outcomes(connection: Connection, queue: str) -> dict[str, int]:
    return dict(connection.execute(SQL["outcomes"], {"queue": queue}).fetchall())


def setting(connection: Connection, key: str) -> Any:
    found = connection.execute(SQL["setting"], {"key": key}).fetchone()
    return None if found is None else json.loads(found[0])


def processes(connection: Connection) -> list[Process]:
    return [process_of(row) for row in connection.execute(SQL["processes"])]


def agent_messages(connection: Connection, agent_id: str, page: dict[str, int]) -> list[AgentMessage]:
    rows = connection.execute(SQL["agent_messages"], {"agent_id": agent_id} | page)
    return [agent_message_of(row) for row in rows]


def chat_messages(connection: Connection, team_id: str, page: dict[str, int]) -> list[ChatMessage]:
    rows = connection.execute(SQL["chat_messages"], {"team_id": team_id} | page)
    return [chat_message_of(row) for row in rows]
