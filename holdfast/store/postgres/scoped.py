"""Conditions in PostgreSQL for callers that may see some events only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.queue.event import Event, FinishedEvent
from holdfast.store.postgres.rows import event_of, finished_of
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.readable import shown
from holdfast.store.scoped import Dialect

CONDITIONS = {
    "sent_by": "sent_by = %(sent_by)s",
    "channels": "coalesce((agent.read_message(event)).channel, '') = any (%(channels)s)",
    "agents": "case when queue = 'inbox' then target else coalesce(event ->> 'agent', '') end"
    " = any (%(agents)s)",
}


def postgres_dialect(store: PostgresStore) -> Dialect:
    async def rows(statement: str, params: dict[str, Any]) -> Sequence[Any]:
        return await store.connections.rows(statement, params)

    return Dialect(
        schema="agent.",
        mark="%({})s",
        conditions=CONDITIONS,
        rows=rows,
        page=store.connections.page,
        ids="id = any (%(ids)s::int8[])",
        moment=lambda now: now,
        array=list,
        each="unnest(%({0})s::text[]) as {0} (value)",
        write=rows,
        to_datetime=lambda at: at,
        answers="event -> 'message_ids' ? %(message_id)s",
        event=_event,
        finished=_finished,
    )


def _event(row: tuple[Any, ...]) -> Event:
    return shown(event_of(row))


def _finished(row: tuple[Any, ...]) -> FinishedEvent:
    return shown(finished_of(row))
