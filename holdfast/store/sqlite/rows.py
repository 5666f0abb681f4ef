"""Rows of SQLite as our types: times are microseconds since 1970.

Statements for many rows take and return JSON documents. One document is one step of SQLite; row by
row, each step releases the interpreter lock and competes with the event loop for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from holdfast.chat import AgentMessage, ChatMessage
from holdfast.errors import Unreadable
from holdfast.queue.event import Event, FinishedEvent, NewEvent
from holdfast.queue.pages import Measure, Page
from holdfast.queue.store import Filter, Process
from holdfast.store.payload import dump, parse, storable_name
from holdfast.store.readable import EARLIEST, make_readable, state_of
from holdfast.store.readable import LATEST as LATEST_READABLE

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ANY_ID = 2**63 - 1

Row = Sequence[Any]

_AGENT_LINE = attrgetter(
    "agent_id",
    "role",
    "channel",
    "sender",
    "message_id",
    "content",
    "conversation",
    "subject",
    "origin",
)


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


def moment(value: int) -> datetime:
    """Return the moment of a stored number, or the nearest one that Python can hold."""
    try:
        return EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return EARLIEST if value < 0 else LATEST_READABLE


def new_row(
    new: NewEvent, parent_id: int | None = None, root_id: int | None = None, hops: int = 0
) -> list[Any]:
    """Return a row as the statements of put.sql take it."""
    event_ts = new.event_ts
    if event_ts is not None and not EPOCH <= event_ts <= LATEST:
        event_ts = None
    return [
        new.queue,
        new.target,
        new.lane,
        None if event_ts is None else micros(event_ts),
        None if new.vt is None else micros(new.vt),
        new.event,
        new.message_id,
        new.max_attempts,
        parent_id,
        new.root_id if root_id is None else root_id,
        hops,
        new.sent_by,
        storable_name(new.routed_text),
        storable_name(new.routed_team),
    ]


FIRST, LAST = micros(EARLIEST), micros(LATEST_READABLE)
"""Bounds of the times of live events."""


class Moments(dict[int, datetime]):
    """A cache of moments by microseconds: a batch has many equal ones, and a look-up is cheaper."""

    def __init__(self) -> None:
        self._claims: dict[str, tuple[datetime, ...]] = {}

    def __missing__(self, value: int) -> datetime:
        result = self[value] = moment(value)
        return result

    def claims(self, text: str) -> tuple[datetime, ...]:
        """Return the moments in a JSON array; the arrays of a claim's events are mostly equal."""
        found = self._claims.get(text)
        if found is None:
            found = self._claims[text] = tuple([self[at] for at in parse(text)])
        return found


def event_of(columns: Row, moments: Moments | None = None) -> Event:
    """Return the event of a row; raises TypeError or ValueError if its claims are unreadable."""
    return Event(*_convert(list(columns), Moments() if moments is None else moments))


def listed_event_of(columns: Row) -> Event:
    """Return the event of a row for a list, even if it is unreadable."""
    try:
        return make_readable(event_of(columns))
    except (TypeError, ValueError):
        return make_readable(event_of(_without_claims(columns)))


def finished_event_of(columns: Row) -> FinishedEvent:
    """Return the finished event of a row for a list, even if it is unreadable."""
    try:
        return make_readable(_finished_event_of(columns))
    except (TypeError, ValueError):
        return make_readable(_finished_event_of(_without_claims(columns)))


def _finished_event_of(columns: Row) -> FinishedEvent:
    row, moments = list(columns), Moments()
    row[26] = moments[row[26]]
    return FinishedEvent(*_convert(row, moments))


def _without_claims(columns: Row) -> list[Any]:
    return [*columns[:8], "[]", *columns[9:]]


def _convert(row: list[Any], moments: Moments) -> list[Any]:
    if row[17] is not None:
        state = state_of(row[17])
        if isinstance(state, Unreadable):
            row[9] = state
        else:
            row[17] = state
    row[4] = row[4] == 1
    row[5] = moments[row[5]]
    row[7] = moments[row[7]]
    row[8] = moments.claims(row[8])
    row[20] = moments[row[20]]
    row[21] = moments[row[21]]
    return row


def filter_params(which: Filter) -> dict[str, Any]:
    return {
        "ids": None if which.ids is None else dump(list(which.ids)),
        "queue": which.queue,
        "target": which.target,
        "outcomes": None if which.outcomes is None else dump(list(which.outcomes)),
        "error": which.error,
    }


def page_params(
    limit: int = 20,
    before_id: int | None = None,
    since_id: int | None = None,
    most_bytes: int | None = None,
) -> dict[str, Any]:
    return {
        "most_bytes": most_bytes,
        "limit": max(limit, 0),
        "before_id": ANY_ID if before_id is None else before_id,
        "since_id": -ANY_ID if since_id is None else since_id,
    }


def read_page(rows: Iterable[Row], params: dict[str, Any]) -> Page[Row]:
    """Read rows until the page of these parameters is full."""
    return Measure(params["limit"], params["most_bytes"]).page(rows)


def chat_message_row(line: ChatMessage, now: int) -> list[Any]:
    """Return the values of all columns but the id."""
    created_at = now if line.created_at is None else micros(line.created_at)
    return [line.team_id, line.from_agent, line.message, line.subject, line.key, created_at]


def agent_message_row(line: AgentMessage, now: int) -> list[Any]:
    """Return the values of all columns but the id."""
    created_at = now if line.created_at is None else micros(line.created_at)
    return [*_AGENT_LINE(line), created_at]


def agent_message_of(row: Row) -> AgentMessage:
    return AgentMessage(
        id=row[0],
        agent_id=row[1],
        role=row[2],
        channel=row[3],
        sender=row[4],
        message_id=row[5],
        content=row[6],
        conversation=row[7],
        created_at=moment(row[8]),
    )


def chat_message_of(row: Row) -> ChatMessage:
    return ChatMessage(
        id=row[0], team_id=row[1], from_agent=row[2], message=row[3], created_at=moment(row[4])
    )


def process_params(process: Process) -> dict[str, Any]:
    return {
        "id": process.id,
        "host": process.host,
        "started_at": micros(process.started_at),
        "seen_at": micros(process.seen_at),
        "last_wake_reason": process.last_wake_reason,
        "turns": process.turns,
        "serves": None if process.serves is None else dump(process.serves),
        "problems": dump(process.problems) if process.problems else None,
    }


def process_of(row: Row) -> Process:
    return Process(
        id=row[0],
        host=row[1],
        started_at=moment(row[2]),
        seen_at=moment(row[3]),
        last_wake_reason=row[4],
        turns=row[5],
        serves=None if row[6] is None else parse(row[6]),
        problems=parse(row[7] or "{}"),
    )
