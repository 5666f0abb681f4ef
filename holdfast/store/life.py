"""The life of an event: its attempts and steps, the messages handed on from it, its responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.queue.event import INBOX, Event, FinishedEvent
from holdfast.queue.journal import Journal
from holdfast.queue.pages import PAGE_BYTES
from holdfast.queue.store import Filter, Store
from holdfast.store.chain import read_related
from holdfast.store.messages import state_of
from holdfast.store.scoped import COLUMNS, FINISHED_COLUMNS, Dialect, dialect_of

MOST_ATTEMPTS = 100
MOST_MESSAGES = 200
MOST_RESPONSES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt that failed: who worked, and why it failed."""

    attempt: int
    at: datetime
    worker: str | None
    error: str | None
    error_class: str | None
    traceback: str | None


@dataclass(slots=True, kw_only=True)
class Life:
    """An event with everything that is known about it."""

    event: Event
    state: str
    """pending, processing, waiting, completed, dead or discarded."""
    attempts: Sequence[Attempt]
    journal: Journal
    messages: Sequence[Event] = field(default_factory=list)
    """The messages of its chain, oldest first, including the event if it is a message."""
    responses: Sequence[Event] = field(default_factory=list)
    """The responses of its chain, oldest first."""


async def read_life(store: Store, event_id: int) -> Life | None:
    """Read the life of an event, live or finished; None if it is unknown."""
    return await _LifeReader(store).read(event_id)


def life_state(event: Event, now: datetime, *, waits: bool = False) -> str:
    """Return the state of an event, even of a discarded one."""
    is_discarded = isinstance(event, FinishedEvent) and event.outcome == "discarded"
    return "discarded" if is_discarded else state_of(event, now, waits=waits)


class _LifeReader:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._dialect: Dialect = dialect_of(store)

    async def read(self, event_id: int) -> Life | None:
        event: Event | None = await self._store.live(event_id)
        if event is None:
            finished = await self._store.finished(Filter(ids=[event_id]), limit=1)
            if not finished:
                return None
            event = finished[0]
        journal = await self._store.journal(event.id, results=False)
        ids, response_ids = await read_related(self._store, event)
        messages = await self._events(sorted({*ids[:MOST_MESSAGES], event.id}))
        return Life(
            event=event,
            state=life_state(event, await self._store.now(), waits=journal.waits),
            attempts=await self._attempts(event.id),
            journal=journal,
            messages=[one for one in messages if one.queue == INBOX],
            responses=await self._events(response_ids[:MOST_RESPONSES]),
        )

    async def _attempts(self, event_id: int) -> list[Attempt]:
        rows = await self._dialect.rows(
            "select attempt, at, worker, error, error_class, traceback"
            f" from {self._dialect.schema}attempt"
            f" where event_id = {self._dialect.mark.format('event_id')}"
            f" order by id desc limit {MOST_ATTEMPTS}",
            {"event_id": event_id},
        )
        return [self._attempt(row) for row in reversed(rows)]

    def _attempt(self, row: Sequence[Any]) -> Attempt:
        attempt, at, worker, error, error_class, traceback = row
        return Attempt(
            attempt=attempt,
            at=self._dialect.to_datetime(at),
            worker=worker,
            error=error,
            error_class=error_class,
            traceback=traceback,
        )

    async def _events(self, ids: Sequence[int]) -> list[Event]:
        """Read events by id, live and finished, oldest first, up to the bytes of a page."""
        live = await self._rows("event", COLUMNS, ids)
        ended = await self._rows("event_hist", FINISHED_COLUMNS, ids)
        events: dict[int, Event] = {row[0]: self._dialect.event(row) for row in live}
        events |= {row[0]: self._dialect.finished(row) for row in ended}
        return [events[id_] for id_ in ids if id_ in events]

    async def _rows(self, table: str, columns: str, ids: Sequence[int]) -> Sequence[Any]:
        return await self._dialect.page(
            f"select {columns} from {self._dialect.schema}{table}"
            f" where {self._dialect.ids} order by id",
            {"ids": self._dialect.array(ids)},
            len(ids),
            PAGE_BYTES,
        )
