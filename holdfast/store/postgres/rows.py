"""Rows: Python values as arguments of the SQL functions, and their results as Python values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from operator import attrgetter
from typing import Any, TypeVar, assert_never, cast

from holdfast.chat import (
    AgentMessage,
    AnswerFile,
    ChatMessage,
    NewConversation,
    NewVersion,
    SentFiles,
)
from holdfast.errors import Unreadable
from holdfast.memory.observation import Observation
from holdfast.message import Payload
from holdfast.queue.event import Event, FinishedEvent, NewEvent
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Snooze
from holdfast.queue.record import Activity, Record
from holdfast.queue.store import Process
from holdfast.queue.turn import LeasedTurn
from holdfast.store.failure import failure_of
from holdfast.store.payload import dump, parse, storable_name
from holdfast.store.readable import limit_delay, state_of
from holdfast.telemetry.redaction import redact_prose

# In the order of the fields of Event.
COLUMNS = (
    "id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,"
    " message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class,"
    " created_at, updated_at, sent_by, routed_text, routed_team"
)
OPTIONAL = (
    *("target", "lane", "message_id", "max_attempts", "root_id", "sent_by"),
    *("routed_text", "routed_team"),
)
"""Fields of a new event that are left out of its JSON if they are None."""
FINISHED_COLUMNS = COLUMNS + ", outcome, finished_at, traceback"
PROCESS = (
    *("id", "host", "started_at", "seen_at", "last_wake_reason", "turns", "serves", "problems"),
)

AnyEvent = TypeVar("AnyEvent", Event, FinishedEvent)


def event_of(row: tuple[Any, ...]) -> Event:
    return _with_state(Event(*row))


def finished_of(row: tuple[Any, ...]) -> FinishedEvent:
    return _with_state(FinishedEvent(*row))


def _with_state(event: AnyEvent) -> AnyEvent:
    """Parse the state of an event; an unreadable one makes the whole event unreadable."""
    event.claimed = tuple(event.claimed)
    if event.state is not None:
        state = state_of(cast(str, event.state))
        if isinstance(state, Unreadable):
            event.payload = state
        else:
            event.state = state
    return event


def turns_of(rows: Sequence[tuple[Any, ...]]) -> list[LeasedTurn]:
    """Group claimed events into turns by fence, each with its head first."""
    members: dict[int, list[Event]] = {}
    for event in sorted(map(event_of, rows), key=attrgetter("id")):
        members.setdefault(event.fence, []).append(event)
    return [
        LeasedTurn(turn[0].queue, fence, tuple(turn)) for fence, turn in sorted(members.items())
    ]


def new_event(new: NewEvent) -> Payload:
    """Return an element of the argument of agent.put."""
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
    """Return the arguments of agent.put_one."""
    names = map(storable_name, (new.queue, new.target, new.lane, new.message_id))
    return dump(new.event), *names, new.event_ts, new.vt, new.max_attempts


def record(line: Record) -> Payload:
    """Return an element of the argument of agent.record."""
    # Not by dataclasses.asdict, which copies deeply and takes twenty times as long.
    if isinstance(line, Activity):
        # As text, which the server need not parse; without brackets, so that it can join several.
        return {"frames": dump(line.frames)[1:-1]}
    if isinstance(line, Observation):
        return observation_row(line)
    if isinstance(line, NewConversation | NewVersion | SentFiles | AnswerFile):
        return chat_row(line)
    if isinstance(line, ChatMessage):
        return {
            "team_id": line.team_id,
            "from_agent": line.from_agent,
            "message": line.message,
            "subject": line.subject,
            "key": line.key,
        }
    if isinstance(line, AgentMessage):
        return agent_message_row(line)
    raise TypeError(f"the store keeps no records such as {line!r}")


def agent_message_row(line: AgentMessage) -> Payload:
    """Return the argument of agent.record for a line of an agent's history."""
    return {
        "agent_id": line.agent_id,
        "role": line.role,
        "channel": line.channel,
        "sender": line.sender,
        "message_id": line.message_id,
        "content": line.content,
        "conversation": line.conversation,
        "subject": line.subject,
        "origin": line.origin,
        "event_id": line.event_id,
        "created_at": line.created_at,
    }


def chat_row(line: NewConversation | NewVersion | SentFiles | AnswerFile) -> Payload:
    """Return the argument of agent.record for a record of the chat."""
    if isinstance(line, NewConversation):
        return conversation_row(line)
    if isinstance(line, SentFiles):
        return {
            "file_ids": list(line.ids),
            "owner": line.owner or "",
            "message_id": line.message_id,
            "conversation": line.conversation,
            "subject": line.subject,
        }
    if isinstance(line, AnswerFile):
        return answer_file_row(line)
    return {
        "original": line.original,
        "message_id": line.message_id,
        "conversation": line.conversation,
    }


def conversation_row(new: NewConversation) -> Payload:
    """Return a row of the list of conversations."""
    return {
        "conversation": new.conversation,
        "owner": new.owner or "",
        "channel": new.channel,
        "sender": new.sender,
        "title": new.title,
        "subject": new.subject,
    }


def answer_file_row(file: AnswerFile) -> Payload:
    """Return a row of the files of conversations."""
    return {
        "file_id": file.id,
        "owner": file.owner or "",
        "name": file.name,
        "type": file.type,
        "size": file.size,
        "path": file.path,
        "agent": file.agent,
        "message_id": file.message_id,
        "conversation": file.conversation,
        "subject": file.subject,
    }


def observation_row(observation: Observation) -> Payload:
    """Return the argument of agent.save_observation."""
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
    """Return an element of the argument of agent.renew and agent.release."""
    return {"ids": turn.ids, "fence": turn.fence}


def end_of(turn: LeasedTurn, outcome: Outcome, max_attempts: int) -> Payload:
    """Return an element of the argument of agent.settle."""
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
        case Snooze(delay, leave_lane):
            end |= {"outcome": "leave" if leave_lane else "snooze", "delay": interval(delay)}
        case Dead():
            end |= {"outcome": "dead", **asdict(failure_of(outcome))}
        case _:
            assert_never(outcome)
    return end


def interval(delay: timedelta | None) -> str | None:
    """Return an interval as text, exact and independent of the server's settings."""
    return (
        None if delay is None else f"{limit_delay(delay) // timedelta(microseconds=1)} microseconds"
    )


def process_of(row: Sequence[Any]) -> Process:
    values = dict(zip(PROCESS, row, strict=True))
    serves = None if values["serves"] is None else parse(values["serves"])
    return Process(**values | {"serves": serves, "problems": parse(values["problems"] or "{}")})


def heartbeat_of(process: Process) -> tuple[Any, ...]:
    """Return the arguments of agent.beat."""
    problems = dump(process.problems) if process.problems else None
    return process.id, process.last_wake_reason, process.turns, problems
