"""Between Python values and what the SQL functions take and return."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, assert_never

from holdfast.event import Event, FinishedEvent, NewEvent, Payload, Record, Turn
from holdfast.outcome import Dead, Done, Outcome, Retry, Snooze

COLUMNS = (
    "id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder, message_id, max_attempts,"
    " parent_id, root_id, hops, state, last_error, error_class, created_at, updated_at"
)
FINISHED_COLUMNS = COLUMNS + ", outcome, finished_at"
_NAMES = COLUMNS.split(", ")
_FINISHED_NAMES = FINISHED_COLUMNS.split(", ")


def event_of(row: tuple[Any, ...]) -> Event:
    values = dict(zip(_NAMES, row, strict=True))
    values["claimed"] = tuple(values["claimed"])
    return Event(**values)


def finished_of(row: tuple[Any, ...]) -> FinishedEvent:
    values = dict(zip(_FINISHED_NAMES, row, strict=True))
    values["claimed"] = tuple(values["claimed"])
    return FinishedEvent(**values)


def turns_of(events: list[Event]) -> list[Turn]:
    """Claimed events by fence, each turn with its head first."""
    in_order = sorted(events, key=lambda event: (event.fence, event.id))
    return [
        Turn(members[0].queue, fence, members)
        for fence, members in ((fence, tuple(group)) for fence, group in groupby(in_order, key=attrgetter("fence")))
    ]


def new_event(new: NewEvent) -> Payload:
    row: Payload = {"event": new.event, "queue": new.queue}
    for name in ("target", "lane", "message_id", "max_attempts"):
        value = getattr(new, name)
        if value is not None:
            row[name] = value
    for name in ("event_ts", "vt"):
        moment = getattr(new, name)
        if moment is not None:
            row[name] = moment.isoformat()
    return row


def record(line: Record) -> Payload:
    return {name: value for name, value in asdict(line).items() if name not in ("id", "created_at")}


def lease_of(turn: Turn) -> Payload:
    return {"ids": turn.ids, "fence": turn.fence}


def end_of(turn: Turn, outcome: Outcome, max_attempts: int) -> Payload:
    end = lease_of(turn) | {"max_attempts": max_attempts}
    match outcome:
        case Done(emits, records, state):
            end |= {"outcome": "done", "state": state}
            end |= {"emits": [new_event(emit) for emit in emits], "records": [record(line) for line in records]}
        case Retry(error, delay, error_class):
            end |= {"outcome": "retry", "error": error, "error_class": error_class, "delay": interval(delay)}
        case Snooze(delay):
            end |= {"outcome": "snooze", "delay": interval(delay)}
        case Dead(reason, error_class):
            end |= {"outcome": "dead", "error": reason, "error_class": error_class}
        case _:
            assert_never(outcome)
    return {name: value for name, value in end.items() if value not in (None, [])}


def interval(delay: timedelta | None) -> str | None:
    """Exact to the microsecond, and free of the server's settings."""
    return None if delay is None else f"{delay // timedelta(microseconds=1)} microseconds"
