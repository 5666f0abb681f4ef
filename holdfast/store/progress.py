"""How far a message is: its place in the queue, and the messages handed on from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.queue.event import INBOX, OUTBOX, Event
from holdfast.queue.journal import Journal
from holdfast.queue.store import Store
from holdfast.store.chain import status_of
from holdfast.store.scoped import COLUMNS, FINISHED_COLUMNS, Dialect, dialect_of

MOST_AHEAD = 1000
"""Messages before one that are counted."""
MOST_HANDOFFS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOn:
    """A message from one agent to another, and how far it is."""

    event: Event
    journal: Journal
    status: str


async def messages_ahead(store: Store, message: Event, most: int = MOST_AHEAD) -> tuple[int, int]:
    """Count the messages before a waiting one: in its lane, and ready ones of its agent."""
    dialect = dialect_of(store)
    params = {
        "id": message.id,
        "vt": dialect.moment(message.vt),
        "now": dialect.moment(await store.now()),
        "target": message.target,
    }
    marks = {name: dialect.mark.format(name) for name in (*params, "lane")}
    ready = (
        "target = {target} and head and vt <= {now} and (vt < {vt} or (vt = {vt} and id < {id}))"
    )
    for_agent = await _count(dialect, ready.format(**marks), params, most)
    if message.lane is None:
        return 0, for_agent
    in_lane = f"lane = {marks['lane']} and {dialect.lane_order} < {marks['id']}"
    params = {"id": message.id, "lane": message.lane}
    return await _count(dialect, f"{in_lane} and id < {marks['id']}", params, most), for_agent


async def _count(dialect: Dialect, where: str, params: dict[str, Any], most: int) -> int:
    [(count,)] = await dialect.rows(
        f"select count(*) from (select 1 from {dialect.schema}event"
        f" where queue = '{INBOX}' and {where} limit {most}) as ahead",
        params,
    )
    return int(count)


async def read_handoffs(store: Store, root: int) -> list[HandedOn]:
    """List the messages that agents handed on from a root message, oldest first."""
    dialect = dialect_of(store)
    where = (
        f"where root_id = {dialect.mark.format('root')} and queue = '{INBOX}' and hops > 0"
        f" order by id limit {MOST_HANDOFFS}"
    )
    found: dict[int, Event] = {}
    # A message that ends between the queries is in both: the finished row replaces the live one.
    for table, columns, make in (
        ("event", COLUMNS, dialect.event),
        ("event_hist", FINISHED_COLUMNS, dialect.finished),
    ):
        statement = f"select {columns} from {dialect.schema}{table} {where}"
        for row in await dialect.rows(statement, {"root": root}):
            event: Event = make(row)
            found[event.id] = event
    return [await _handed_on(store, found[id_]) for id_ in sorted(found)[:MOST_HANDOFFS]]


async def find_response(store: Store, key: str) -> Event | None:
    """Find a response by its own message id, live or finished."""
    dialect = dialect_of(store)
    of_key = (
        f"id = (select event_id from {dialect.schema}message_key where queue = '{OUTBOX}'"
        f" and message_id = {dialect.mark.format('key')})"
    )
    for table in ("event", "event_hist"):
        rows = await dialect.rows(
            f"select {COLUMNS} from {dialect.schema}{table} where {of_key}", {"key": key}
        )
        if rows:
            return dialect.event(rows[0])
    return None


async def _handed_on(store: Store, event: Event) -> HandedOn:
    journal = await store.journal(event.id, results=False) if event.claimed else Journal()
    return HandedOn(
        event=event, journal=journal, status=status_of(event, journal, await store.now())
    )
