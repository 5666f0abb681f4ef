"""One event: its life as a timeline, its chain as a tree, its responses; and its replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NotRequired

from fastapi import APIRouter, Request
from typing_extensions import TypedDict

from holdfast.api.paging import EventId
from holdfast.api.response import ApiError, JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.routes.pauses import ShownPause, shown_pause
from holdfast.api.security.caller import actor_of, caller_of
from holdfast.api.security.scope import refuse_foreign, refuse_limited, sees_agent
from holdfast.api.state import state_of
from holdfast.message import (
    Payload,
    channel_of,
    conversation_of,
    sender_id_of,
    sender_of,
    written_of,
)
from holdfast.queue.event import INBOX, Event, FinishedEvent, payload_to_show
from holdfast.queue.journal import EFFECT_UNKNOWN, Step
from holdfast.routing.handoff import shown_text
from holdfast.store.life import Attempt, Life, life_state, read_life
from holdfast.store.pauses import QUEUES, Pauses

routes = APIRouter(route_class=AuthorizedRoute, tags=["messages"])

NOT_FOUND = "event not found"
SHOWN = 200
"""Characters of the messages in a tree."""


class TimelineEntry(TypedDict):
    """Something that happened to an event. Keys beside `at` and `kind` depend on the kind."""

    at: int
    kind: str
    text: NotRequired[str]
    attempt: NotRequired[int]
    worker: NotRequired[str | None]
    error: NotRequired[str | None]
    errorClass: NotRequired[str | None]
    traceback: NotRequired[str]
    key: NotRequired[str]
    status: NotRequired[str]
    endedAt: NotRequired[int | None]
    tokens: NotRequired[int]
    cost: NotRequired[float]
    eventId: NotRequired[int]
    agent: NotRequired[str]
    channel: NotRequired[str]
    state: NotRequired[str]


class TreeNode(TypedDict):
    """A message of the chain, and the messages handed on from it."""

    id: int
    messageId: str | None
    agent: str
    state: str
    receivedAt: int
    finishedAt: int | None
    message: str
    children: list[Any]


class ShownPart(TypedDict):
    """A part of a response; `status` is sending or sent."""

    key: str
    status: str | None
    receipt: Any


class ShownResponse(TypedDict):
    """A response of the chain, and the receipts of its parts."""

    id: int
    agent: str
    channel: str
    message: str
    state: str
    receivedAt: int
    finishedAt: int | None
    parts: list[ShownPart]


class Actions(TypedDict):
    """Actions that the state of the event allows; roles are checked separately."""

    cancel: bool
    retry: bool
    discard: bool
    replay: bool
    needsAssume: bool


class EventPage(TypedDict):
    """Everything that is known of an event."""

    id: int
    queue: str
    messageId: str | None
    agent: str
    channel: str
    sender: str
    senderId: str | None
    conversation: str
    message: str
    state: str
    outcome: str | None
    attempts: int
    maxAttempts: int | None
    receivedAt: int
    finishedAt: int | None
    lane: str | None
    worker: str | None
    error: str | None
    errorClass: str | None
    traceback: NotRequired[str]
    paused: ShownPause | None
    timeline: list[TimelineEntry]
    tree: TreeNode | None
    responses: list[ShownResponse]
    actions: Actions
    raw: dict[str, Any]


class ReplayResult(TypedDict):
    """The new event."""

    ok: bool
    id: int
    messageId: str | None


EXAMPLE: dict[str, Any] = {
    "id": 7,
    "queue": "inbox",
    "messageId": "api_m8boovyb",
    "agent": "coder",
    "channel": "api",
    "sender": "Ada",
    "senderId": None,
    "conversation": "api:Ada",
    "message": "what broke the build?",
    "state": "completed",
    "outcome": "completed",
    "attempts": 1,
    "maxAttempts": 5,
    "receivedAt": 1767225600000,
    "finishedAt": 1767225604000,
    "lane": "coder/api:Ada",
    "worker": "host-4711_x2k4m9qa",
    "error": None,
    "errorClass": None,
    "paused": None,
    "timeline": [
        {"at": 1767225600000, "kind": "received", "text": "by api from Ada"},
        {"at": 1767225601000, "kind": "claimed", "attempt": 1, "worker": "host-4711_x2k4m9qa"},
        {"at": 1767225604000, "kind": "completed"},
    ],
    "tree": {
        "id": 7,
        "messageId": "api_m8boovyb",
        "agent": "coder",
        "state": "completed",
        "receivedAt": 1767225600000,
        "finishedAt": 1767225604000,
        "message": "what broke the build?",
        "children": [],
    },
    "responses": [],
    "actions": {
        "cancel": False,
        "retry": False,
        "discard": False,
        "replay": True,
        "needsAssume": False,
    },
    "raw": {"kind": "message", "channel": "api", "message": "what broke the build?"},
}


@routes.get(
    "/api/events/{id}",
    summary="Get the life of an event",
    **route_options("read", EventPage, EXAMPLE, 404),
)
async def get_event(request: Request, id: EventId) -> JsonResponse:
    """Everything that is known of an event of any queue, by its id: claims, failed attempts with
    tracebacks, steps, hand-offs as a tree, responses with receipts, and the payload as stored.

    `timeline` has the kinds received, claimed, failed, step, handoff, response, completed, dead,
    expired, cancelled and discarded, in the order of time. The tree has at most 200 messages."""
    await refuse_foreign(request, id, NOT_FOUND)
    state, caller = state_of(request), caller_of(request)
    life = await read_life(state.store, id)
    if life is None:
        raise ApiError(404, NOT_FOUND)
    default, now = (await state.routing()).default, await state.store.now()
    # Teammates may be out of the caller's bounds.
    life.messages = [one for one in life.messages if sees_agent(caller, one.target or default)]
    life.responses = [
        one for one in life.responses if sees_agent(caller, str(_agent(one, default)))
    ]
    page = _page(life, default, now)
    page["paused"] = await _pause_of(request, life, default)
    return JsonResponse(page)


@routes.post(
    "/api/events/{id}/replay",
    summary="Replay a finished event",
    **route_options("admin", ReplayResult, {"ok": True, "id": 12, "messageId": "x~12"}, 404, 409),
)
async def replay_event(request: Request, id: EventId) -> JsonResponse:
    """Put a finished event once more, as a new one with the same payload. 409 while it is live."""
    await refuse_limited(request)
    store = state_of(request).store
    new_ids = await store.replay([id], actor=actor_of(request))
    if not new_ids:
        if await store.live(id) is not None:
            raise ApiError(409, "the event is live; wait for its end, or cancel it")
        raise ApiError(404, NOT_FOUND)
    event = await store.live(new_ids[0])
    name = None if event is None else event.message_id
    return JsonResponse(ReplayResult(ok=True, id=new_ids[0], messageId=name))


async def _pause_of(request: Request, life: Life, default: str) -> ShownPause | None:
    if life.state not in ("pending", "waiting"):
        return None
    event, paused = life.event, await Pauses(state_of(request).store).all()
    kind = next((kind for kind, queue in QUEUES.items() if queue == event.queue), None)
    found = paused.find("queue", event.queue)
    if found is None and kind is not None:
        found = paused.find(kind, event.target or (default if kind == "agent" else ""))
    return None if found is None else shown_pause(found)


def _page(life: Life, default: str, now: datetime) -> EventPage:
    event, payload = life.event, payload_to_show(life.event)
    page = EventPage(
        id=event.id,
        queue=event.queue,
        messageId=event.message_id,
        agent=_agent(event, default),
        channel=channel_of(payload),
        sender=sender_of(payload),
        senderId=sender_id_of(payload),
        conversation=conversation_of(payload),
        message=shown_text(event),
        state=life.state,
        outcome=event.outcome if isinstance(event, FinishedEvent) else None,
        attempts=event.attempts,
        maxAttempts=event.max_attempts,
        receivedAt=millis(event.created_at),
        finishedAt=_finished_at(event),
        lane=event.lane,
        worker=event.holder,
        error=event.last_error,
        errorClass=event.error_class,
        paused=None,
        timeline=_timeline(life, default, now),
        tree=_tree(life, default, now),
        responses=[_response(one, default, now) for one in life.responses],
        actions=_actions(life),
        raw=payload,
    )
    if isinstance(event, FinishedEvent) and event.traceback is not None:
        page["traceback"] = event.traceback
    return page


def _agent(event: Event, default: str) -> str:
    if event.queue == INBOX:
        return event.target or default
    return str(payload_to_show(event).get("agent") or "")


def _finished_at(event: Event) -> int | None:
    return millis(event.finished_at) if isinstance(event, FinishedEvent) else None


def _timeline(life: Life, default: str, now: datetime) -> list[TimelineEntry]:
    entries = [
        *_claims(life.event, life.attempts),
        *(_step(step) for step in life.journal.steps.values() if step.started_at is not None),
        *_came_of(life, default, now),
        *_end(life.event),
    ]
    # The receipt is first, whatever clocks say; entries of one moment keep their order.
    return [_receipt(life.event), *sorted(entries, key=lambda entry: entry["at"])]


def _receipt(event: Event) -> TimelineEntry:
    payload = payload_to_show(event)
    channel, sender = channel_of(payload), sender_of(payload)
    text = f"by {channel} from {sender}" if sender else f"by {channel}" if channel else ""
    return TimelineEntry(at=millis(event.created_at), kind="received", text=text)


def _claims(event: Event, attempts: Sequence[Attempt]) -> Iterator[TimelineEntry]:
    """Yield claims and failures. The worker of a claim is that of the failure that follows it."""
    failures = list(attempts)
    for number, at in enumerate(event.claimed, 1):
        following = event.claimed[number] if number < len(event.claimed) else None
        ended = [
            one for one in failures if one.at >= at and (following is None or one.at <= following)
        ]
        is_last = following is None
        worker = ended[0].worker if ended else event.holder if is_last else None
        yield TimelineEntry(at=millis(at), kind="claimed", attempt=number, worker=worker)
    for one in failures:
        yield _failure(one)


def _failure(attempt: Attempt) -> TimelineEntry:
    entry = TimelineEntry(
        at=millis(attempt.at),
        kind="failed",
        attempt=attempt.attempt,
        worker=attempt.worker,
        error=attempt.error,
        errorClass=attempt.error_class,
    )
    return entry if attempt.traceback is None else {**entry, "traceback": attempt.traceback}


def _step(step: Step) -> TimelineEntry:
    assert step.started_at is not None
    entry = TimelineEntry(
        at=millis(step.started_at),
        kind="step",
        key=step.key,
        status=step.state,
        attempt=step.attempt,
        endedAt=None if step.ended_at is None else millis(step.ended_at),
    )
    if step.tokens is not None:
        entry["tokens"] = step.tokens
    if step.cost is not None:
        entry["cost"] = step.cost
    if step.error:
        entry["error"] = step.error
    return entry


def _came_of(life: Life, default: str, now: datetime) -> Iterator[TimelineEntry]:
    own = life.event.id
    for one in life.messages:
        if one.parent_id == own:
            yield TimelineEntry(
                at=millis(one.created_at), kind="handoff", eventId=one.id, agent=one.target
            )
    for one in life.responses:
        if one.parent_id == own:
            yield TimelineEntry(
                at=millis(one.created_at),
                kind="response",
                eventId=one.id,
                channel=one.target,
                state=life_state(one, now),
            )


def _end(event: Event) -> Iterator[TimelineEntry]:
    if isinstance(event, FinishedEvent):
        entry = TimelineEntry(at=millis(event.finished_at), kind=event.outcome)
        yield entry if event.last_error is None else {**entry, "error": event.last_error}


def _tree(life: Life, default: str, now: datetime) -> TreeNode | None:
    """Build the tree of the chain from its root; a message whose parent is gone hangs there."""
    if not life.messages:
        return None
    nodes = {one.id: _node(one, default, now) for one in life.messages}
    root = nodes.get(life.event.root_id or life.event.id) or nodes[life.messages[0].id]
    for one in life.messages:
        node = nodes[one.id]
        if node is not root:
            nodes.get(one.parent_id or 0, root)["children"].append(node)
    return root


def _node(event: Event, default: str, now: datetime) -> TreeNode:
    return TreeNode(
        id=event.id,
        messageId=event.message_id,
        agent=event.target or default,
        state=life_state(event, now),
        receivedAt=millis(event.created_at),
        finishedAt=_finished_at(event),
        message=shown_text(event)[:SHOWN],
        children=[],
    )


def _response(event: Event, default: str, now: datetime) -> ShownResponse:
    return ShownResponse(
        id=event.id,
        agent=_agent(event, default),
        channel=event.target,
        message=written_of(payload_to_show(event)),
        state=life_state(event, now),
        receivedAt=millis(event.created_at),
        finishedAt=_finished_at(event),
        parts=_parts(event.state),
    )


def _parts(progress: Payload | None) -> list[ShownPart]:
    parts = (progress or {}).get("parts")
    return [
        ShownPart(key=key, status=part.get("state"), receipt=part.get("receipt"))
        for key, part in (parts.items() if isinstance(parts, dict) else ())
        if isinstance(part, dict)
    ]


def _actions(life: Life) -> Actions:
    is_live = not isinstance(life.event, FinishedEvent)
    is_dead = life.state == "dead"
    return Actions(
        cancel=is_live,
        retry=is_dead,
        discard=is_dead,
        replay=not is_live and life.state != "discarded",
        needsAssume=is_dead and life.event.error_class == EFFECT_UNKNOWN,
    )
