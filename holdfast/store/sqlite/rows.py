"""How events and times look in SQLite: microseconds since 1970, and JSON documents for many rows at once.

A statement that takes or gives one JSON document is one step of SQLite. Row by row, each step lets go of the
interpreter lock and has to win it back from the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any

from holdfast.errors import Unreadable
from holdfast.message import unrouted
from holdfast.queue.event import Event, FinishedEvent, NewEvent
from holdfast.queue.record import AgentMessage, ChatMessage
from holdfast.queue.store import Filter, Process
from holdfast.store.payload import dump, parse
from holdfast.store.readable import EARLIEST, shown, state_of
from holdfast.store.readable import LATEST as LATEST_READABLE

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ANY_ID = 2**63 - 1
_NONE = (None,) * 6

Row = Sequence[Any]


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


def moment(value: int) -> datetime:
    """The moment of a stored number; one that Python does not know becomes the nearest that it does."""
    try:
        return EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return EARLIEST if value < 0 else LATEST_READABLE


def new_row(
    new: NewEvent, parent_id: int | None = None, root_id: int | None = None, hops: int = 0
) -> list[Any]:
    """A row as the statements of put.sql take it."""
    event_ts = new.event_ts
    if event_ts is not None and not EPOCH <= event_ts <= LATEST:
        event_ts = None
    payload, routed_text, routed_team = unrouted(new.event)
    return [
        new.queue,
        new.target,
        new.lane,
        None if event_ts is None else micros(event_ts),
        None if new.vt is None else micros(new.vt),
        payload,
        new.message_id,
        new.max_attempts,
        parent_id,
        new.root_id if root_id is None else root_id,
        hops,
        new.sent_by,
        routed_text,
        routed_team,
    ]


FIRST, LAST = micros(EARLIEST), micros(LATEST_READABLE)
"""Between these lie the times of live events."""


class Moments(dict[int, datetime]):
    """Moments by their microseconds; in a batch many are the same, and making one costs more than finding it."""

    def __missing__(self, value: int) -> datetime:
        found = self[value] = moment(value)
        return found


@dataclass(frozen=True, slots=True)
class Lease:
    """What a claim sets on all its events alike."""

    queue: str
    holder: str | None
    vt: int
    now: int

    def taken(self, event: Event) -> Event:
        """An event that was read before the claim, as it is after it, but for its fence."""
        event.attempts += 1
        event.claimed = (*event.claimed, moment(self.now))
        event.holder, event.vt, event.updated_at = self.holder, moment(self.vt), moment(self.now)
        return event

    def taken_of(self, target: str, ids: Sequence[int], columns: Row) -> list[Event]:
        """The same for what the query `ready` found of a target."""
        if not ids:
            return []
        joined, rare, *documents = columns
        payloads = joined.split("\x1e")
        if len(payloads) != len(ids):
            raise ValueError("a payload is not JSON")
        [lanes, sent, attempts, claims, names, most, parents, roots, hops, created] = map(
            parse, documents
        )
        of_few = parse(rare)
        if any(state is not None and not isinstance(state, dict) for state, *_ in of_few.values()):
            raise ValueError("a state is no JSON object")
        states, errors, error_classes, senders, texts, teams = (
            zip(*[of_few.get(str(id), _NONE) for id in ids], strict=True)
            if of_few
            else repeat(repeat(None), 6)
        )
        moments = Moments()
        made = moments.__getitem__
        now = made(self.now)
        first = (now,)
        claimed = [(*map(made, times), now) if times else first for times in claims]
        # fmt: off
        return list(map(
            Event, ids, repeat(self.queue), repeat(target), lanes, repeat(True), map(made, sent),
            [before + 1 for before in attempts], repeat(made(self.vt)), claimed, payloads, repeat(0),
            repeat(self.holder), names, most, parents, roots, hops, states, errors, error_classes, map(made, created),
            repeat(now), senders, texts, teams,
        ))
        # fmt: on


def stored_of(columns: Row) -> Event:
    """Make an event of its stored columns; TypeError or ValueError if its claims cannot be read."""
    return Event(*_made(list(columns), Moments()))


def listed_of(columns: Row) -> Event:
    """Make an event to be listed, whatever its columns hold."""
    try:
        return shown(stored_of(columns))
    except (TypeError, ValueError):
        return shown(stored_of(_without_claims(columns)))


def finished_of(columns: Row) -> FinishedEvent:
    """Make a finished event to be listed, whatever its columns hold."""
    try:
        return shown(_finished_of(columns))
    except (TypeError, ValueError):
        return shown(_finished_of(_without_claims(columns)))


def _finished_of(columns: Row) -> FinishedEvent:
    row, moments = list(columns), Moments()
    row[26] = moments[row[26]]
    return FinishedEvent(*_made(row, moments))


def _without_claims(columns: Row) -> list[Any]:
    return [*columns[:8], "[]", *columns[9:]]


def _made(row: list[Any], moments: Moments) -> list[Any]:
    row[8] = parse(row[8])
    if row[17] is not None:
        state = state_of(row[17])
        if isinstance(state, Unreadable):
            row[9] = state
        else:
            row[17] = state
    row[4] = row[4] == 1
    row[5] = moments[row[5]]
    row[7] = moments[row[7]]
    row[8] = tuple([moments[at] for at in row[8]])
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


def page_params(limit: int, before_id: int | None, since_id: int | None) -> dict[str, int]:
    return {
        "limit": max(limit, 0),
        "before_id": ANY_ID if before_id is None else before_id,
        "since_id": -ANY_ID if since_id is None else since_id,
    }


def line_row(line: AgentMessage | ChatMessage, now: int) -> list[Any]:
    """The values of its columns, but the id."""
    created_at = now if line.created_at is None else micros(line.created_at)
    if isinstance(line, ChatMessage):
        return [line.team_id, line.from_agent, line.message, line.subject, line.key, created_at]
    return [
        line.agent_id,
        line.role,
        line.channel,
        line.sender,
        line.message_id,
        line.content,
        line.conversation,
        line.subject,
        created_at,
    ]


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
    )
