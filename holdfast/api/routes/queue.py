"""Status of the queues, and messages that are being processed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NotRequired

from fastapi import APIRouter, Request
from typing_extensions import TypedDict

from holdfast.api.paging import EventId, Paged, list_response
from holdfast.api.response import MILLISECOND, OK, ApiError, JsonResponse, Ok, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import actor_of
from holdfast.api.security.scope import visible_reads
from holdfast.api.state import state_of
from holdfast.message import channel_of, sender_of, written_of
from holdfast.queue.event import INBOX, OUTBOX, Event
from holdfast.queue.store import DEAD_OUTCOMES, Count
from holdfast.store.scoped import ScopedReads

routes = APIRouter(route_class=AuthorizedRoute, tags=["queue"])

BY_API = "by the API"


class Status(TypedDict):
    """Numbers of events. `outgoing` counts the outbox, all others the inbox."""

    incoming: int
    queued: int
    pending: int
    processing: int
    completed: int
    dead: int
    outgoing: int


class AgentQueue(TypedDict):
    """Numbers of messages for one agent; `pending` includes `queued`."""

    agent: str
    pending: int
    queued: int
    processing: int
    served: NotRequired[bool]
    """False if processes run and none serves the agent, else absent."""
    paused: NotRequired[bool]
    """True if the agent is paused, else absent."""


class Processing(TypedDict):
    """A message that is being processed."""

    id: int
    messageId: str | None
    channel: str
    sender: str
    message: str
    agent: str
    status: str
    startedAt: int
    duration: int
    worker: str | None


async def _counts(request: Request) -> Sequence[Count]:
    reads = await visible_reads(request)
    return (
        await reads.counts()
        if isinstance(reads, ScopedReads)
        else await state_of(request).counts.get()
    )


async def _outcomes(request: Request) -> Mapping[str, int]:
    reads = await visible_reads(request)
    return (
        await reads.outcomes(INBOX)
        if isinstance(reads, ScopedReads)
        else await state_of(request).outcomes.get()
    )


def _sum(counts: Sequence[Count], *states: str) -> int:
    return sum(getattr(count, state) for count in counts for state in states)


@routes.get(
    "/api/queue/status",
    summary="Get the status of the queues",
    **route_options(
        "read",
        Status,
        {
            "incoming": 1,
            "queued": 2,
            "pending": 3,
            "processing": 1,
            "completed": 40,
            "dead": 0,
            "outgoing": 2,
        },
    ),
)
async def get_status(request: Request) -> JsonResponse:
    """incoming: ready or delayed; queued: behind another of its lane; pending: both; processing:
    leased.

    Exact. If counting takes longer than 50 ms, the result is cached for up to 20 times that
    long."""
    counts, ended = await _counts(request), await _outcomes(request)
    inbox = [count for count in counts if count.queue == INBOX]
    outbox = [count for count in counts if count.queue == OUTBOX]
    status = Status(
        incoming=_sum(inbox, "ready", "delayed"),
        queued=_sum(inbox, "queued"),
        pending=_sum(inbox, "ready", "delayed", "queued"),
        processing=_sum(inbox, "leased"),
        completed=ended.get("completed", 0),
        dead=sum(ended.get(outcome, 0) for outcome in DEAD_OUTCOMES),
        outgoing=_sum(outbox, "ready", "delayed", "queued", "leased"),
    )
    return JsonResponse(status)


@routes.get(
    "/api/queue/agents",
    summary="Get pending messages by agent",
    **route_options(
        "read", list[AgentQueue], [{"agent": "coder", "pending": 3, "queued": 2, "processing": 1}]
    ),
)
async def get_agent_queues(request: Request) -> JsonResponse:
    """List agents with live messages.

    An entry has `served`: false if processes run and none of them serves the agent, and `paused`:
    true if somebody paused it."""
    state = state_of(request)
    directory = await state.directory()
    default = directory.routing.default
    of_agent: dict[str, list[Count]] = {}
    for count in await _counts(request):
        if count.queue == INBOX:
            of_agent.setdefault(count.target or default, []).append(count)
    unserved = {agent for agent in of_agent if directory.entries and not directory.is_served(agent)}
    return JsonResponse(
        [
            _agent_queue(agent, counts, agent in unserved, directory.is_paused(agent))
            for agent, counts in sorted(of_agent.items())
        ]
    )


def _agent_queue(
    agent: str, counts: Sequence[Count], is_unserved: bool, is_paused: bool
) -> AgentQueue:
    found = AgentQueue(
        agent=agent,
        pending=_sum(counts, "ready", "delayed", "queued"),
        queued=_sum(counts, "queued"),
        processing=_sum(counts, "leased"),
    )
    if is_unserved:
        found["served"] = False
    if is_paused:
        found["paused"] = True
    return found


@routes.get(
    "/api/queue/processing",
    summary="List messages that are being processed",
    **route_options(
        "read",
        list[Processing],
        [
            {
                "id": 7,
                "messageId": "api_m8boovyb",
                "channel": "api",
                "sender": "Ada",
                "message": "what broke the build?",
                "agent": "coder",
                "status": "processing",
                "startedAt": 1767225600000,
                "duration": 1500,
                "worker": "host-4711_x2k4m9qa",
            }
        ],
        400,
    ),
)
async def get_processing(request: Request, page: Paged) -> JsonResponse:
    """List leased messages, newest first."""
    state = state_of(request)
    default, now = (await state.routing()).default, await state.store.now()
    found = await (await visible_reads(request)).leased(INBOX, **page.within(request))
    return list_response(request, found, lambda event: _processing(event, default, now))


def _processing(event: Event, default: str, now: datetime) -> Processing:
    started_at = event.claimed[-1] if event.claimed else event.updated_at
    return Processing(
        id=event.id,
        messageId=event.message_id,
        channel=channel_of(event.event),
        sender=sender_of(event.event),
        message=written_of(event.event),
        agent=event.target or default,
        status="processing",
        startedAt=millis(started_at),
        duration=max(0, (now - started_at) // MILLISECOND),
        worker=event.holder,
    )


@routes.post(
    "/api/queue/processing/{id}/kill",
    summary="Cancel a message that is being processed",
    **route_options("admin", Ok, {"ok": True}, 404),
)
async def kill(request: Request, id: EventId) -> JsonResponse:
    """End the message as a dead letter with outcome cancelled.

    Its worker loses the lease and cannot settle."""
    store = state_of(request).store
    event = await store.live(id)
    if (
        event is None
        or event.queue != INBOX
        or not await store.cancel(id, BY_API, actor=actor_of(request))
    ):
        raise ApiError(404, "processing message not found")
    return JsonResponse(OK)
