"""The part of a store that a caller with limits may see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from holdfast.chat import AgentMessage, ChatStore
from holdfast.queue.event import INBOX, Event, FinishedEvent
from holdfast.queue.pages import Page
from holdfast.queue.store import DEAD_OUTCOMES, Count, Filter, Store
from holdfast.store.engine import is_sqlite, postgres_engine, sqlite_engine

GREATEST_ID = 2**63 - 1


def _columns(row: type[Event]) -> str:
    """Return the columns of a row in the order of its fields; the payload is column `event`."""
    return ", ".join("event" if field.name == "payload" else field.name for field in fields(row))


COLUMNS = _columns(Event)
FINISHED_COLUMNS = _columns(FinishedEvent)
COUNTS = (
    "queue, target, sum(case when head and vt <= {now} then 1 else 0 end),"
    " sum(case when head and vt > {now} and fence = 0 then 1 else 0 end),"
    " sum(case when not head and not (fence > 0 and vt > {now}) then 1 else 0 end),"
    " sum(case when fence > 0 and vt > {now} then 1 else 0 end)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Events that a caller may see: of a sender, or of channels and agents; None means all."""

    sent_by: str | None = None
    channels: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None

    @property
    def as_params(self) -> dict[str, Any]:
        """The limits as parameters of a query, without those that are None."""
        limits: dict[str, Any] = {
            "sent_by": self.sent_by,
            "channels": self.channels,
            "agents": self.agents,
        }
        return {name: value for name, value in limits.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The reads that differ between the engines."""

    schema: str
    mark: str
    """How a statement names a parameter."""
    conditions: Mapping[str, str]
    """Conditions on an event, by the limits of a scope."""
    rows: Callable[[str, dict[str, Any]], Awaitable[Sequence[Any]]]
    moment: Callable[[datetime], Any]
    page: Callable[[str, dict[str, Any], int, int | None], Awaitable[Page[Any]]]
    ids: str
    """The condition that an id is among the parameter `ids`."""
    like: str
    """The operator that compares a text with a pattern, whatever the case of ASCII letters."""
    lane_order: str
    """The order of events in a lane, as their index has it."""
    newest_in_lanes: str
    """A query for the ids of the newest inbox events in each lane of the parameter `lanes`, at most
    `most` of each."""
    texts: Callable[[str], str]
    """Returns the condition that a text id is among the values of the named parameter."""
    array: Callable[[Sequence[Any]], Any]
    each: str
    """A table of the texts in an array parameter, named after it, with one column `value`."""
    write: Callable[[str, dict[str, Any]], Awaitable[Sequence[Any]]]
    """Run a statement that changes something. Returns its rows."""
    to_datetime: Callable[[Any], datetime]
    answers: str
    """The condition that a response lists the parameter `message_id` among those it answers."""
    event: Callable[[Any], Event]
    finished: Callable[[Any], FinishedEvent]
    last_claim: str
    """The time of an event's last claim, null if there is none."""
    filters: Mapping[str, str]
    """Conditions on the message of an event, by the name of their parameter."""
    contains: str
    """The condition that one text is a part of another, in any case."""
    server: str
    """A query for the versions of the server and of TimescaleDB, null if that is not there."""


class ScopedReads:
    """Reads of a store, limited to a scope; named like those of the store itself."""

    def __init__(self, store: ChatStore, scope: Scope, dialect: Dialect) -> None:
        self._store = store
        self._scope = scope
        self._dialect = dialect
        limits = scope.as_params
        self._where = " and ".join(f"({dialect.conditions[name]})" for name in limits) or "true"
        self._params = {
            name: value if isinstance(value, str) else dialect.array(value)
            for name, value in limits.items()
        }

    async def recent(
        self,
        queue: str,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        """Live and finished events of a queue, newest first; those discarded are left out."""
        wanted = f"queue = {self._mark('queue')}"
        params = {"queue": queue, **_bounds(limit, before_id, since_id)}
        ids = await self._ids("event", wanted, params)
        ids += await self._ids("event_hist", f"outcome <> 'discarded' and {wanted}", params)
        newest = sorted(ids, reverse=True)[:limit]
        found = await self._page(
            f"select {COLUMNS} from {self._table('event')} where {self._dialect.ids}"
            f" union all select {COLUMNS} from {self._table('event_hist')}"
            f" where {self._dialect.ids}"
            " order by id desc",
            newest,
            limit,
            most_bytes,
        )
        return found.map(self._dialect.event)

    async def waiting(
        self,
        queue: str,
        target: str,
        *,
        limit: int = 100,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        """Live events of a target, oldest first."""
        wanted = f"queue = {self._mark('queue')} and target = {self._mark('target')}"
        params = {"queue": queue, "target": target, **_bounds(limit, before_id, since_id)}
        ids = await self._ids("event", wanted, params, order="id")
        return await self._live(ids, "id", limit, most_bytes)

    async def leased(
        self,
        queue: str,
        *,
        limit: int | None = None,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Event]:
        """The events being worked now, newest first."""
        most = GREATEST_ID if limit is None else limit
        wanted = f"queue = {self._mark('queue')} and fence > 0 and vt > {self._mark('now')}"
        now = self._dialect.moment(await self._store.now())
        params = {"queue": queue, "now": now, **_bounds(most, before_id, since_id)}
        return await self._live(
            await self._ids("event", wanted, params), "id desc", most, most_bytes
        )

    async def dead(
        self,
        which: Filter,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[FinishedEvent]:
        """Dead letters of a queue, newest first."""
        outcomes = ", ".join(f"'{outcome}'" for outcome in DEAD_OUTCOMES)
        wanted = f"queue = {self._mark('queue')} and outcome in ({outcomes})"
        params = {"queue": which.queue or INBOX, **_bounds(limit, before_id, since_id)}
        found = await self._page(
            f"select {FINISHED_COLUMNS} from {self._table('event_hist')}"
            f" where {self._dialect.ids} order by id desc",
            await self._ids("event_hist", wanted, params),
            limit,
            most_bytes,
        )
        return found.map(self._dialect.finished)

    async def counts(self) -> list[Count]:
        """Live events by queue and target."""
        now = self._mark("now")
        found = await self._rows(
            f"select {COUNTS.format(now=now)} from {self._table('event')}"
            f" where {self._where} group by queue, target",
            now=self._dialect.moment(await self._store.now()),
        )
        names = ("queue", "target", "ready", "delayed", "queued", "leased")
        return [Count(**dict(zip(names, row, strict=True))) for row in found]

    async def outcomes(self, queue: str) -> dict[str, int]:
        """Finished events of a queue by how they ended."""
        found = await self._rows(
            f"select outcome, count(*) from {self._table('event_hist')} where {self._where}"
            f" and queue = {self._mark('queue')} group by outcome",
            queue=queue,
        )
        return dict(found)

    async def agent_messages(
        self,
        agent_id: str,
        *,
        limit: int = 20,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[AgentMessage]:
        """List an agent's history in the channels of the scope, newest first; empty for a sender.

        Lines of other channels count for the size of a page, which bounds what a page reads."""
        channels, agents = self._scope.channels, self._scope.agents
        if self._scope.sent_by is not None or (agents is not None and agent_id not in agents):
            return Page()
        found: Page[AgentMessage] = Page()
        while len(found) < limit:
            page = await self._store.agent_messages(
                agent_id, limit=limit, before_id=before_id, since_id=since_id, most_bytes=most_bytes
            )
            found += [line for line in page if channels is None or line.channel in channels]
            found.has_more = page.has_more
            if not page.has_more or found:
                break
            before_id = page[-1].id
        return found

    async def has(self, event_id: int) -> bool:
        """Whether an event, live or finished, is in the scope."""
        one = f"{self._where} and id = {self._mark('id')}"
        found = await self._rows(
            f"select 1 from {self._table('event')} where {one}"
            f" union all select 1 from {self._table('event_hist')} where {one}",
            id=event_id,
        )
        return bool(found)

    def _table(self, name: str) -> str:
        return f"{self._dialect.schema}{name}"

    def _mark(self, name: str) -> str:
        return self._dialect.mark.format(name)

    async def _ids(
        self, table: str, wanted: str, params: dict[str, Any], *, order: str = "id desc"
    ) -> list[int]:
        """The ids of a page, without the payloads of others."""
        rows = await self._rows(
            f"select id from {self._table(table)} where {self._where} and {wanted}"
            f" and id < {self._mark('before_id')} and id > {self._mark('since_id')}"
            f" order by {order} limit {self._mark('limit')}",
            **params,
        )
        return [id_ for (id_,) in rows]

    async def _live(
        self, ids: list[int], order: str, limit: int, most_bytes: int | None
    ) -> Page[Event]:
        statement = (
            f"select {COLUMNS} from {self._table('event')}"
            f" where {self._dialect.ids} order by {order}"
        )
        return (await self._page(statement, ids, limit, most_bytes)).map(self._dialect.event)

    async def _page(
        self, statement: str, ids: list[int], limit: int, most_bytes: int | None
    ) -> Page[Any]:
        return await self._dialect.page(
            statement, {"ids": self._dialect.array(ids)}, limit, most_bytes
        )

    async def _rows(self, statement: str, **params: Any) -> Sequence[Any]:
        return await self._dialect.rows(statement, self._params | params)


def _bounds(limit: int, before_id: int | None, since_id: int | None) -> dict[str, int]:
    return {
        "limit": limit,
        "before_id": GREATEST_ID if before_id is None else before_id,
        "since_id": 0 if since_id is None else since_id,
    }


def open_scoped(store: ChatStore, scope: Scope) -> ScopedReads:
    """Return the part of a store that is in a scope."""
    return ScopedReads(store, scope, dialect_of(store))


def dialect_of(store: Store) -> Dialect:
    """Return the dialect of a store's engine."""
    if is_sqlite(store):
        from holdfast.store.sqlite.reads import sqlite_dialect

        return sqlite_dialect(sqlite_engine(store))
    from holdfast.store.postgres.scoped import postgres_dialect

    return postgres_dialect(postgres_engine(store))
