"""Progress of a message as clients see it: position, steps, hand-offs, and awaited signals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NotRequired

from pydantic_core import from_json
from typing_extensions import TypedDict

from holdfast.api.response import millis
from holdfast.channels.buttons import buttons_of
from holdfast.message import written_of
from holdfast.queue.event import Event, FinishedEvent, payload_to_show
from holdfast.queue.journal import Journal, Step
from holdfast.queue.store import Store
from holdfast.routing.handoff import shown_text
from holdfast.store.progress import HandedOn, find_response


class StepStatus(TypedDict):
    """A recorded step. `status` is started, done, failed or unknown; `duration` is in ms."""

    key: str
    status: str
    attempt: int
    kind: str
    startedAt: int | None
    endedAt: int | None
    duration: int | None
    tokens: NotRequired[int]
    cost: NotRequired[float]
    error: NotRequired[str]


class Position(TypedDict):
    """Messages before a waiting one: in its conversation, and of its agent; at most 1,000 each."""

    lane: int
    agent: int


class Option(TypedDict):
    """An answer that a waiting turn offers."""

    label: str
    value: Any


class WaitingFor(TypedDict):
    """The signal that a turn waits for, and what it asks people."""

    messageId: str
    signal: str
    prompt: NotRequired[str]
    options: NotRequired[list[Option]]
    until: int | None


class HandoffStatus(TypedDict):
    """A message from one agent to a teammate."""

    messageId: str
    eventId: int
    parentId: int | None
    fromAgent: str
    toAgent: str
    message: str
    status: str
    createdAt: int
    startedAt: int | None
    endedAt: int | None
    steps: list[StepStatus]
    tokens: NotRequired[int]
    cost: NotRequired[float]
    error: NotRequired[str]


def shown_step(step: Step) -> StepStatus:
    started, ended = step.started_at, step.ended_at
    has_ended = started is not None and ended is not None
    shown = StepStatus(
        key=step.key,
        status=step.state,
        attempt=step.attempt,
        kind=step.kind,
        startedAt=None if started is None else millis(started),
        endedAt=None if ended is None else millis(ended),
        duration=millis(ended) - millis(started) if has_ended else None,  # type: ignore[arg-type]
    )
    if step.tokens is not None:
        shown["tokens"] = step.tokens
    if step.cost is not None:
        shown["cost"] = step.cost
    if step.error:
        shown["error"] = step.error
    return shown


def sum_usage(journals: Iterable[Journal]) -> tuple[int | None, float | None]:
    """Return the tokens and the cost of all steps; None if no step recorded any."""
    steps = [step for journal in journals for step in journal.steps.values()]
    tokens = [step.tokens for step in steps if step.tokens is not None]
    costs = [step.cost for step in steps if step.cost is not None]
    return sum(tokens) if tokens else None, sum(costs) if costs else None


def started_at(event: Event) -> int | None:
    return millis(event.claimed[0]) if event.claimed else None


def ended_at(event: Event) -> int | None:
    return millis(event.finished_at) if isinstance(event, FinishedEvent) else None


def shown_handoff(handed: HandedOn) -> HandoffStatus:
    event = handed.event
    payload = payload_to_show(event)
    shown = HandoffStatus(
        messageId=event.message_id or str(event.id),
        eventId=event.id,
        parentId=event.parent_id,
        fromAgent=str(payload.get("from_agent") or ""),
        toAgent=event.target,
        message=shown_text(event),
        status=handed.status,
        createdAt=millis(event.created_at),
        startedAt=started_at(event),
        endedAt=ended_at(event),
        steps=[shown_step(step) for step in handed.journal.steps.values()],
    )
    tokens, cost = sum_usage([handed.journal])
    if tokens is not None:
        shown["tokens"] = tokens
    if cost is not None:
        shown["cost"] = cost
    if handed.status == "dead" and event.last_error:
        shown["error"] = event.last_error
    return shown


async def waiting_for(store: Store, event: Event) -> WaitingFor | None:
    """Return the signal that a message waits for; None if it waits for none."""
    journal = await store.journal(event.id)
    waits = [
        step
        for step in journal.steps.values()
        if step.kind == "signal" and step.state == "started" and step.signal
    ]
    if not waits:
        return None
    step, message_id = waits[0], event.message_id or str(event.id)
    waiting = WaitingFor(
        messageId=message_id,
        signal=step.signal or "",
        until=None if step.due_at is None else millis(step.due_at),
    )
    asked = from_json(step.arguments) if step.arguments else None
    if isinstance(asked, dict) and "options" in asked:
        waiting["prompt"], waiting["options"] = str(asked.get("prompt") or ""), asked["options"]
    else:
        await _add_question(store, waiting)
    return waiting


async def _add_question(store: Store, waiting: WaitingFor) -> None:
    """Add the question that the turn sent with buttons, if it sent one."""
    found = await find_response(store, f"{waiting['messageId']}/{waiting['signal']}")
    payload = {} if found is None else payload_to_show(found)
    buttons = [one for one in buttons_of(payload) if one.signal == waiting["signal"]]
    if buttons:
        waiting["prompt"] = written_of(payload)
        waiting["options"] = [Option(label=one.label, value=one.value) for one in buttons]
