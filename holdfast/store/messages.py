"""Search over messages, live and finished, newest first.

History is searched backwards in windows, as filters on payloads have no index. A search ends after
a bounded number of rows or a bounded time, and says where to go on."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from holdfast.queue.event import INBOX, Event, FinishedEvent
from holdfast.queue.store import DEAD_OUTCOMES, Store
from holdfast.store.overview import DEAD
from holdfast.store.scoped import (
    COLUMNS,
    FINISHED_COLUMNS,
    GREATEST_ID,
    Dialect,
    Scope,
    dialect_of,
)

State = Literal["pending", "processing", "waiting", "completed", "dead"]
Ending = Literal["completed", "dead", "expired", "cancelled"]

LIVE: tuple[State, ...] = ("pending", "processing", "waiting")
FIRST_WINDOW = 500
LARGEST_WINDOW = 16_000
MOST_SEARCHED = 50_000
"""Rows that one search examines at most."""
SEARCH_SECONDS = 0.4
"""Time after which a search examines no further window."""
WAITS = (
    "exists (select 1 from {schema}step as w where w.event_id = live.id"
    " and w.kind in ('sleep', 'signal') and w.state = 'started')"
)
"""SQL condition that the turn of a live event waits for a moment or a signal."""
LATE = timedelta(hours=1)
"""Longest time by which the order of ids and that of times may differ, due to long transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """The messages to find; None means any. `agents` are targets, '' for no agent."""

    agents: Sequence[str] | None = None
    channel: str | None = None
    sender: str | None = None
    text: str | None = None
    state: State | None = None
    outcome: Ending | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The endings of finished messages that may match."""
        wanted: tuple[str, ...] = ("completed", *DEAD_OUTCOMES)
        if self.state is not None:
            wanted = {"completed": ("completed",), "dead": DEAD_OUTCOMES}.get(self.state, ())
        return wanted if self.outcome is None else tuple({self.outcome} & {*wanted})

    @property
    def is_live(self) -> bool:
        """Whether live messages may match."""
        return self.outcome is None and (self.state is None or self.state in LIVE)


@dataclass(slots=True)
class MessagePage:
    """A page of messages with their states, where to go on, and how far back the search got."""

    messages: list[tuple[Event, State]] = field(default_factory=list)
    next_before_id: int | None = None
    searched_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Window:
    """Ids between two bounds; the last window reaches the oldest message, or `since`."""

    before_id: int
    after_id: int
    is_last: bool


class MessageSearch:
    """Finds messages that a caller may see."""

    def __init__(
        self,
        store: Store,
        scope: Scope | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        first_window: int = FIRST_WINDOW,
        most_searched: int = MOST_SEARCHED,
    ) -> None:
        self._store = store
        self._dialect: Dialect = dialect_of(store)
        self._clock = clock
        self._first_window = first_window
        self._most_searched = most_searched
        self._sent_by = None if scope is None else scope.sent_by
        limits = {} if scope is None else scope.as_params
        self._scope = [f"({self._dialect.conditions[name]})" for name in limits]
        self._scope_params = {
            name: value if isinstance(value, str) else self._dialect.array(value)
            for name, value in limits.items()
        }

    async def find(
        self,
        which: MessageFilter,
        *,
        limit: int = 50,
        before_id: int | None = None,
        since_id: int | None = None,
        most_bytes: int | None = None,
    ) -> MessagePage:
        """Return a page of messages, newest first. It may be empty and still name a next one."""
        start, end = await self._bounds(which, before_id, since_id)
        ids: set[int] = set()
        window = _Window(end, start, is_last=True)
        async for window in self._windows(which, end, start):
            ids |= set(await self._matching(which, window, limit))
            if len(ids) >= limit:
                break
        return await self._page(sorted(ids, reverse=True)[:limit], limit, window, most_bytes)

    async def _bounds(
        self, which: MessageFilter, before_id: int | None, since_id: int | None
    ) -> tuple[int, int]:
        """Return the ids between which messages may match."""
        start, end = since_id or 0, GREATEST_ID if before_id is None else before_id
        if which.until is not None:
            end = min(end, await self._first_id_after(which.until + LATE))
        if which.since is not None:
            start = max(start, await self._first_id_after(which.since - LATE) - 1)
        return start, end

    async def _windows(
        self, which: MessageFilter, before_id: int, after_id: int
    ) -> AsyncIterator[_Window]:
        """Yield windows, each twice as large as the last, until enough was examined."""
        size, searched, begun_at = self._first_window, 0, self._clock()
        while searched < self._most_searched:
            bound = await self._batch_bound(which, before_id, size)
            window = _Window(before_id, max(bound, after_id), is_last=bound <= after_id)
            yield window
            if window.is_last or self._clock() - begun_at > SEARCH_SECONDS:
                return
            searched, before_id = searched + size, window.after_id + 1
            size = min(size * 2, LARGEST_WINDOW)

    async def _batch_bound(self, which: MessageFilter, before_id: int, size: int) -> int:
        """Return the greatest id such that at most `size` rows of each table are above it.

        Returns 0 if there are no more rows than that."""
        bounds = [
            f"(select id from {table} where id < {self._mark('before_id')}"
            f"{self._index_condition(condition)} order by id desc limit 1 offset {size})"
            for table, condition in self._tables(which)
        ]
        # SQLite allows a limit in a part of a union only inside of a further select.
        parts = " union all ".join(f"select id from {part} as bound" for part in bounds)
        rows = await self._rows(parts, before_id=before_id) if bounds else ()
        return max((int(id_) for (id_,) in rows), default=0)

    def _tables(self, which: MessageFilter) -> Iterator[tuple[str, str]]:
        """Yield the tables to search, each with the condition that an index helps with."""
        if which.is_live:
            yield f"{self._dialect.schema}event", ""
        if which.outcomes:
            is_dead = set(which.outcomes) <= set(DEAD_OUTCOMES)
            yield f"{self._dialect.schema}event_hist", f" and {DEAD}" if is_dead else ""

    def _index_condition(self, condition: str) -> str:
        own = " and sent_by = " + self._mark("sent_by") if self._sent_by is not None else ""
        queue = f" and queue = '{INBOX}'" if own or condition else ""
        return f"{queue}{own}{condition}"

    async def _matching(self, which: MessageFilter, window: _Window, limit: int) -> list[int]:
        conditions, params = self._conditions(which)
        where = f"id < {self._mark('before_id')} and id > {self._mark('after_id')}"
        where = " and ".join([where, f"queue = '{INBOX}'", *self._scope, *conditions])
        selects = []
        if which.is_live:
            selects.append(self._live(which, where, limit))
        if which.outcomes:
            outcomes = ", ".join(f"'{one}'" for one in sorted(which.outcomes))
            selects.append(
                f"(select id from {self._dialect.schema}event_hist"
                f" where {where} and outcome in ({outcomes}) order by id desc limit {limit})"
            )
        params |= {"before_id": window.before_id, "after_id": window.after_id}
        params["now"] = self._dialect.moment(await self._store.now())
        parts = [f"select id from {select} as found" for select in selects]
        rows = await self._rows(" union all ".join(parts), **params) if parts else ()
        return [id_ for (id_,) in rows]

    def _live(self, which: MessageFilter, where: str, limit: int) -> str:
        state = "" if which.state is None else f" and {self._is_in(which.state)}"
        return (
            f"(select id from {self._dialect.schema}event as live where {where}{state}"
            f" order by id desc limit {limit})"
        )

    def _is_in(self, state: State) -> str:
        now = self._mark("now")
        leased = f"(fence > 0 and vt > {now})"
        waits = f"(vt > {now} and {WAITS.format(schema=self._dialect.schema)})"
        return {
            "processing": leased,
            "waiting": f"(not {leased} and {waits})",
            "pending": f"(not {leased} and not {waits})",
        }[state]

    def _conditions(self, which: MessageFilter) -> tuple[list[str], dict[str, Any]]:
        """Return the conditions of a filter on both tables, and their parameters."""
        dialect, conditions, params = self._dialect, [], dict[str, Any]()
        for name in ("channel", "sender", "text"):
            if (value := getattr(which, name)) is not None:
                conditions.append(dialect.filters[name])
                params[name] = value
        if which.agents is not None:
            each = dialect.each.format("agents_named")
            conditions.append(f"target in (select agents_named.value from {each})")
            params["agents_named"] = dialect.array(list(which.agents))
        self._bound_times(which, conditions, params)
        return conditions, params

    def _bound_times(
        self, which: MessageFilter, conditions: list[str], params: dict[str, Any]
    ) -> None:
        for name, comparison in (("since", ">="), ("until", "<=")):
            if (moment := getattr(which, name)) is not None:
                conditions.append(f"created_at {comparison} {self._mark(name)}")
                params[name] = self._dialect.moment(moment)

    async def _first_id_after(self, moment: datetime) -> int:
        """Return about the first id that was stored after a moment, by bisection.

        Ids grow with time, as far as no transaction stays open for longer than LATE."""
        tables = [f"{self._dialect.schema}{name}" for name in ("event", "event_hist")]
        low, high = 0, await self._greatest_id(tables) + 1
        first = " union all ".join(
            f"select id, created_at from (select id, created_at from {table}"
            f" where id >= {self._mark('middle')} order by id limit 1) as next"
            for table in tables
        )
        while low < high:
            middle = (low + high) // 2
            rows = await self._rows(first, middle=middle)
            id_, at = min(rows, default=(high, None))
            if at is None or self._dialect.to_datetime(at) > moment:
                high = middle
            else:
                low = id_ + 1
        return low

    async def _greatest_id(self, tables: Sequence[str]) -> int:
        parts = " union all ".join(f"select max(id) from {table}" for table in tables)
        return max(id_ or 0 for (id_,) in await self._rows(parts))

    async def _page(
        self, ids: Sequence[int], limit: int, window: _Window, most_bytes: int | None
    ) -> MessagePage:
        messages = await self._read(ids, most_bytes)
        found = MessagePage(messages=messages)
        if (len(messages) < len(ids) and messages) or len(ids) >= limit:
            found.next_before_id = messages[-1][0].id if messages else ids[-1]
        elif not window.is_last:
            found.next_before_id = window.after_id + 1
        if found.next_before_id is not None:
            found.searched_to = await self._time_of(found.next_before_id)
        return found

    async def _read(self, ids: Sequence[int], most_bytes: int | None) -> list[tuple[Event, State]]:
        """Read messages by id, newest first, until the page is full."""
        params = {"ids": self._dialect.array(ids)}
        finished = await self._dialect.page(
            f"select {FINISHED_COLUMNS} from {self._dialect.schema}event_hist"
            f" where {self._dialect.ids} order by id desc",
            params,
            len(ids),
            most_bytes,
        )
        live = await self._dialect.page(
            f"select {COLUMNS} from {self._dialect.schema}event"
            f" where {self._dialect.ids} order by id desc",
            params,
            len(ids),
            most_bytes,
        )
        # A full page ends early: older rows of the other table must wait for the next page.
        ends = [page[-1][0] for page in (finished, live) if page.has_more and len(page) < len(ids)]
        events = {row[0]: self._dialect.event(row) for row in live}
        events |= {row[0]: self._dialect.finished(row) for row in finished}
        kept = [events[id_] for id_ in ids if id_ in events and id_ >= max(ends, default=0)]
        return await self._with_states(kept)

    async def _with_states(self, events: Sequence[Event]) -> list[tuple[Event, State]]:
        live = [one.id for one in events if not isinstance(one, FinishedEvent)]
        waits = WAITS.format(schema=self._dialect.schema)
        rows = await self._rows(
            f"select id from {self._dialect.schema}event as live"
            f" where {self._dialect.ids} and {waits}",
            ids=self._dialect.array(live),
        )
        now, waiting = await self._store.now(), {id_ for (id_,) in rows}
        return [(one, state_of(one, now, waits=one.id in waiting)) for one in events]

    async def _time_of(self, id_: int) -> datetime | None:
        """Return when the first event from an id on was stored."""
        parts = " union all ".join(
            f"select id, created_at from (select id, created_at from {self._dialect.schema}{table}"
            f" where id >= {self._mark('id')} order by id limit 1) as next"
            for table in ("event", "event_hist")
        )
        rows = await self._rows(parts, id=id_)
        return self._dialect.to_datetime(min(rows)[1]) if rows else None

    def _mark(self, name: str) -> str:
        return self._dialect.mark.format(name)

    async def _rows(self, statement: str, **params: Any) -> Sequence[Any]:
        return await self._dialect.rows(statement, self._scope_params | params)


def state_of(event: Event, now: datetime, *, waits: bool) -> State:
    """Return the state of an event; `waits` if its turn waits for a moment or a signal."""
    if isinstance(event, FinishedEvent):
        return "dead" if event.outcome in DEAD_OUTCOMES else "completed"
    if event.fence > 0 and event.vt > now:
        return "processing"
    return "waiting" if waits and event.vt > now else "pending"
