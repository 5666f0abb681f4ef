"""A Slack event on its way through the classical functions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg.types.json import Jsonb

from tests.store.psql import Connection, value

MENTION = {
    "type": "app_mention",
    "user": "U1",
    "text": "<@BOT> hi",
    "team": "T1",
    "channel": "C1",
    "ts": "1767225600.000200",
    "event_ts": "1767225600.000200",
}


def put(sql: Connection, **changed: Any) -> int | None:
    """A Slack event; a field that is None is left out."""
    payload = {name: given for name, given in {**MENTION, **changed}.items() if given is not None}
    found: int | None = value(sql, "select agent.insert_event(%s)", [Jsonb(payload)])
    return found


def event(sql: Connection, event_id: int | None) -> dict[str, Any]:
    [row] = sql.execute("select * from agent.event where id = %s", [event_id])
    return row


def finished(sql: Connection, event_id: int | None) -> dict[str, Any]:
    [row] = sql.execute("select * from agent.event_hist where id = %s", [event_id])
    return row


def pass_time(sql: Connection, **by: float) -> None:
    """Move the clock of this session."""
    now = value(sql, "select agent.now()") + timedelta(**by)
    sql.execute("select set_config('holdfast.now', %s, false)", [now.isoformat()])
