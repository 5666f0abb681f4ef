"""The model's tables: rows, lanes, message keys, and rules of all operations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from holdfast.message import Payload
from holdfast.queue.event import INBOX, NewEvent
from holdfast.queue.store import Clock, Filter

DEAD_LETTERS = ("dead", "expired", "cancelled")
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
NO_ATTEMPTS_LEFT = "no attempts left"


@dataclass(slots=True, kw_only=True)
class Row:
    """An event with its place in the store; `outcome` is None while it is live."""

    id: int
    queue: str
    target: str
    lane: str | None
    event: Payload
    event_ts: datetime
    vt: datetime
    message_id: str | None
    max_attempts: int | None
    parent_id: int | None = None
    root_id: int | None = None
    hops: int = 0
    head: bool = False
    attempts: int = 0
    claimed: tuple[datetime, ...] = ()
    fence: int = 0
    holder: str | None = None
    state: Payload | None = None
    last_error: str | None = None
    error_class: str | None = None
    outcome: str | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """A message id that was seen."""

    event_id: int
    parent_id: int | None
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class Held:
    """A turn as its holder remembers it."""

    fence: int
    ids: tuple[int, ...]


@dataclass(slots=True)
class Tables:
    """Live rows, history and keys. New ids come from `ids`, which a store can supply."""

    clock: Clock
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    live: dict[int, Row] = field(default_factory=dict)
    history: dict[int, Row] = field(default_factory=dict)
    keys: dict[tuple[str, str], Key] = field(default_factory=dict)
    limits: dict[tuple[str, str], int] = field(default_factory=dict)
    fences: set[int] = field(default_factory=set)
    waits: set[int] = field(default_factory=set)
    """Events whose turn recorded that it waits for a signal."""

    def is_leased(self, row: Row) -> bool:
        return row.fence > 0 and row.vt > self.clock()

    def has_attempts(self, row: Row, max_attempts: int) -> bool:
        return row.attempts < (max_attempts if row.max_attempts is None else row.max_attempts)

    def holds(self, turn: Held) -> bool:
        return turn.fence > 0 and all(
            id in self.live and self.live[id].fence == turn.fence for id in turn.ids
        )

    def matching(self, which: Filter) -> list[Row]:
        """Finished events that the filter means, newest first."""
        return sorted(
            (row for row in self.history.values() if _matches(row, which)), key=lambda row: -row.id
        )

    def lane_of(self, of: Row) -> list[Row]:
        if of.lane is None:
            return []
        return sorted(
            (row for row in self.live.values() if (row.queue, row.lane) == (of.queue, of.lane)),
            key=lambda row: row.id,
        )

    def claimed_together(self, head: Row, row: Row) -> bool:
        return head.claimed != () and head.claimed[-1:] == row.claimed[-1:]

    def primary_of(self, row: Row) -> Row:
        """Return the first event of the turn that an event is in, or was in when it was given
        back."""
        heads = (one for one in self.lane_of(row) if one.head)
        head = next(heads, row)
        is_same = head.fence == row.fence and self.claimed_together(head, row)
        return head if is_same else row

    def store(self, new: NewEvent, parent: Row | None) -> int | None:
        if new.message_id is not None and (new.queue, new.message_id) in self.keys:
            return None
        now = self.clock()
        vt = new.vt or now
        lane = None if vt > now else new.lane  # a delayed event would hold up what comes after it
        in_range = new.event_ts is not None and EARLIEST <= new.event_ts <= LATEST
        row = Row(
            id=next(self.ids),
            queue=new.queue,
            target=new.target,
            lane=lane,
            head=lane is None,
            event=new.event,
            event_ts=new.event_ts if new.event_ts and in_range else now,
            vt=vt,
            message_id=new.message_id,
            max_attempts=new.max_attempts,
            root_id=new.root_id,
        )
        self._relate(row, parent)
        self.live[row.id] = row
        return row.id

    def _relate(self, row: Row, parent: Row | None) -> None:
        row.root_id = row.root_id or row.id
        if parent is not None:
            row.parent_id, row.root_id = parent.id, parent.root_id or parent.id
            row.hops = parent.hops + (row.queue == INBOX)
        if row.message_id is not None:
            self.keys[row.queue, row.message_id] = Key(row.id, row.parent_id, self.clock())

    def finish(self, row: Row, outcome: str) -> str:
        if outcome in ("dead", "expired") and row.last_error is None:
            row.last_error = NO_ATTEMPTS_LEFT if outcome == "dead" else "expired"
        row.outcome, row.finished_at, row.fence = outcome, self.clock(), 0
        self.history[row.id] = self.live.pop(row.id)
        return outcome

    def give_back(self, rows: list[Row], vt: datetime) -> str:
        for row in rows:
            row.vt, row.fence, row.holder = vt, 0, None
        return "back"

    def promote(self) -> None:
        """Give every lane without a head its first event, visible from now on."""
        lanes: dict[tuple[str, str], list[Row]] = {}
        for row in self.live.values():
            if row.lane is not None:
                lanes.setdefault((row.queue, row.lane), []).append(row)
        for rows in lanes.values():
            if not any(row.head for row in rows):
                first = min(rows, key=lambda row: row.id)
                first.head, first.vt = True, max(first.vt, self.clock())


def blame(rows: list[Row], error: str | None, error_class: str | None) -> None:
    for row in rows:
        if error is not None:
            row.last_error, row.error_class = error, error_class


def empty(row: Row) -> None:
    row.event, row.state, row.last_error, row.error_class = {}, None, None, None


def _matches(row: Row, which: Filter) -> bool:
    return (
        (which.ids is None or row.id in which.ids)
        and (which.queue is None or row.queue == which.queue)
        and (which.target is None or row.target == which.target)
        and (which.outcomes is None or row.outcome in which.outcomes)
        and (which.error is None or which.error.lower() in (row.last_error or "").lower())
    )
