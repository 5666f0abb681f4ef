"""Conditions in PostgreSQL for callers that may see some events only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.queue.event import Event, FinishedEvent
from holdfast.queue.pages import Page
from holdfast.store.payload import storable
from holdfast.store.postgres.rows import event_of, finished_of
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.readable import make_readable
from holdfast.store.scoped import Dialect

CONDITIONS = {
    "sent_by": "sent_by = %(sent_by)s",
    "channels": "coalesce((agent.read_message(event)).channel, '') = any (%(channels)s)",
    "agents": "case when queue = 'inbox' then target else coalesce(event ->> 'agent', '') end"
    " = any (%(agents)s)",
}
_FIELD = "event ->> case when event ? 'kind' then '{}' else '{}' end"
FILTERS = {
    "channel": "case when event ? 'kind' then event ->> 'channel' else 'slack' end = %(channel)s",
    "sender": f"(lower({_FIELD.format('sender', 'user')}) = lower(%(sender)s)"
    f" or {_FIELD.format('sender_id', 'user')} = %(sender)s)",
    "text": f"strpos(lower({_FIELD.format('message', 'text')}), lower(%(text)s)) > 0",
}
# Lane by lane from the end of the index: one sort over all lanes would read the whole backlog.
NEWEST_IN_LANES = (
    "select newest.id from unnest(%(lanes)s::text[]) as lanes (value) cross join lateral"
    " (select id from agent.event where queue = 'inbox' and lane = lanes.value"
    " order by case when head then 0 else id end desc limit %(most)s) as newest"
)
SERVER = (
    "select 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1),"
    " (select extversion from pg_catalog.pg_extension where extname = 'timescaledb')"
)


def _storable(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with their texts as they would be stored: no text contains NUL here."""
    return {
        name: storable(value) if isinstance(value, (str, list)) else value
        for name, value in params.items()
    }


def postgres_dialect(store: PostgresStore) -> Dialect:
    async def rows(statement: str, params: dict[str, Any]) -> Sequence[Any]:
        return await store.connections.rows(statement, _storable(params))

    async def page(
        statement: str, params: dict[str, Any], limit: int, most_bytes: int | None
    ) -> Page[tuple[Any, ...]]:
        return await store.connections.page(statement, _storable(params), limit, most_bytes)

    return Dialect(
        schema="agent.",
        mark="%({})s",
        conditions=CONDITIONS,
        rows=rows,
        page=page,
        ids="id = any (%(ids)s::int8[])",
        like="ilike",
        lane_order="id + 0",
        newest_in_lanes=NEWEST_IN_LANES,
        texts=lambda name: f"id = any (%({name})s::text[])",
        moment=lambda now: now,
        array=list,
        each="unnest(%({0})s::text[]) as {0} (value)",
        write=rows,
        to_datetime=lambda at: at,
        answers="event -> 'message_ids' ? %(message_id)s",
        event=_event,
        finished=_finished_event,
        last_claim="claimed[cardinality(claimed)]",
        filters=FILTERS,
        contains="strpos(lower({0}), lower({1})) > 0",
        server=SERVER,
    )


def _event(row: tuple[Any, ...]) -> Event:
    return make_readable(event_of(row))


def _finished_event(row: tuple[Any, ...]) -> FinishedEvent:
    return make_readable(finished_of(row))
