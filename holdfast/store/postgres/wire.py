"""Between Python values and what the SQL functions take and return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from operator import attrgetter
from struct import Struct
from typing import Any, TypeVar, assert_never, cast

from psycopg.adapt import Dumper
from psycopg.postgres import types
from psycopg.pq import Format

from holdfast.errors import Unreadable
from holdfast.memory.observation import Observation
from holdfast.message import Payload
from holdfast.queue.event import Event, FinishedEvent, NewEvent
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Snooze
from holdfast.queue.record import Activity, ChatMessage, Record
from holdfast.queue.turn import LeasedTurn
from holdfast.store.collector import uncollected
from holdfast.store.failure import failure_of
from holdfast.store.payload import dump, storable_name
from holdfast.store.readable import bounded, state_of
from holdfast.telemetry.redaction import redact_prose

# In the order of the fields of Event.
COLUMNS = (
    "id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder, message_id, max_attempts,"
    " parent_id, root_id, hops, state, last_error, error_class, created_at, updated_at, sent_by,"
    " routed_text, routed_team"
)
OPTIONAL = (
    *("target", "lane", "message_id", "max_attempts", "root_id", "sent_by"),
    *("routed_text", "routed_team"),
)
"""Fields of a new event that are left out of its JSON if they are None."""
FINISHED_COLUMNS = COLUMNS + ", outcome, finished_at, traceback"

# Dimensions, whether some are null, the type of the elements, how many they are, the number of the first.
_array_header = Struct(">iiIii").pack

AnyEvent = TypeVar("AnyEvent", Event, FinishedEvent)


def event_of(row: tuple[Any, ...]) -> Event:
    return _completed(Event(*row))


def finished_of(row: tuple[Any, ...]) -> FinishedEvent:
    return _completed(FinishedEvent(*row))


def _completed(event: AnyEvent) -> AnyEvent:
    event.claimed = tuple(event.claimed)
    if event.state is not None:
        state = state_of(cast(str, event.state))
        if isinstance(state, Unreadable):
            event.payload = state
        else:
            event.state = state
    return event


@uncollected
def turns_of(rows: Sequence[tuple[Any, ...]]) -> list[LeasedTurn]:
    """Claimed events by fence, each turn with its head first."""
    members: dict[int, list[Event]] = {}
    for event in sorted(map(event_of, rows), key=attrgetter("id")):
        members.setdefault(event.fence, []).append(event)
    return [
        LeasedTurn(turn[0].queue, fence, tuple(turn)) for fence, turn in sorted(members.items())
    ]


def new_event(new: NewEvent) -> Payload:
    row: Payload = {"event": new.event, "queue": new.queue}
    for name in OPTIONAL:
        value = getattr(new, name)
        if value is not None:
            row[name] = value
    for name in ("event_ts", "vt"):
        moment = getattr(new, name)
        if moment is not None:
            row[name] = moment.isoformat()
    return row


def one_event(new: NewEvent) -> tuple[Any, ...]:
    """The arguments of agent.put_one."""
    names = map(storable_name, (new.queue, new.target, new.lane, new.message_id))
    return dump(new.event), *names, new.event_ts, new.vt, new.max_attempts


def record(line: Record) -> Payload:
    # By hand: dataclasses.asdict copies deeply and takes twenty times as long.
    if isinstance(line, Activity):
        # As text, which the server need not take apart; without brackets, so that it can be joined to others.
        return {"frames": dump(line.frames)[1:-1]}
    if isinstance(line, Observation):
        return observation_row(line)
    if isinstance(line, ChatMessage):
        return {
            "team_id": line.team_id,
            "from_agent": line.from_agent,
            "message": line.message,
            "subject": line.subject,
            "key": line.key,
        }
    return {
        "agent_id": line.agent_id,
        "role": line.role,
        "channel": line.channel,
        "sender": line.sender,
        "message_id": line.message_id,
        "content": line.content,
        "conversation": line.conversation,
        "subject": line.subject,
    }


def observation_row(observation: Observation) -> Payload:
    """What agent.save_observation takes."""
    return {
        "workspace_id": observation.workspace_id,
        "id": observation.id,
        "subject_type": observation.subject_type,
        "subject_id": observation.subject_id,
        "observer": observation.observer,
        "type": observation.type.value,
        "content": redact_prose(observation.content),
        "source_message_ids": list(observation.source_message_ids),
        "confidence": observation.confidence,
    }


def lease_of(turn: LeasedTurn) -> Payload:
    return {"ids": turn.ids, "fence": turn.fence}


def end_of(turn: LeasedTurn, outcome: Outcome, max_attempts: int) -> Payload:
    end: Payload = {"ids": turn.ids, "fence": turn.fence, "max_attempts": max_attempts}
    match outcome:
        case Done(emits, records, state):
            end["outcome"] = "done"
            if state is not None:
                end["state"] = state
            if emits:
                end["emits"] = [new_event(emit) for emit in emits]
            if records:
                end["records"] = [record(line) for line in records]
        case Retry(delay=delay):
            end |= {"outcome": "retry", "delay": interval(delay), **asdict(failure_of(outcome))}
        case Snooze(delay):
            end |= {"outcome": "snooze", "delay": interval(delay)}
        case Dead():
            end |= {"outcome": "dead", **asdict(failure_of(outcome))}
        case _:
            assert_never(outcome)
    return end


class TextArray(bytes):
    """Thousands of texts as one argument, in the binary format: a list of them takes the driver five times as long."""

    @classmethod
    def of(cls, elements: Sequence[bytes]) -> TextArray:
        """Each comes with its size; null is a size of -1."""
        return cls(_array_header(1, True, types["text"].oid, len(elements), 1) + b"".join(elements))


class TextArrayDumper(Dumper):
    """Tells the driver what it is."""

    format = Format.BINARY
    oid = types["text"].array_oid

    def dump(self, obj: TextArray) -> TextArray:
        return obj


def interval(delay: timedelta | None) -> str | None:
    """Exact to the microsecond, and free of the server's settings."""
    return None if delay is None else f"{bounded(delay) // timedelta(microseconds=1)} microseconds"
