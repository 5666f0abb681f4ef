"""Dead letters of any queue: listed, retried and discarded."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from fastapi import APIRouter, Query, Request
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.api.body import Body, read_body
from holdfast.api.names import Printable
from holdfast.api.paging import EventId, Page, list_response
from holdfast.api.response import OK, ApiError, JsonResponse, Ok, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.routes.dead_groups import dead_ids_of
from holdfast.api.security.caller import actor_of
from holdfast.api.security.scope import refuse_limited, visible_reads
from holdfast.api.state import state_of
from holdfast.message import channel_of, sender_of, written_of
from holdfast.queue.event import INBOX, FinishedEvent
from holdfast.queue.journal import Assume
from holdfast.queue.pages import Page as Rows
from holdfast.queue.store import Filter

routes = APIRouter(route_class=AuthorizedRoute, tags=["dead letters"])

NOT_FOUND = "dead message not found"
NEEDS_ASSUME = (
    "a call of this message may have happened; look whether it did, then retry with"
    ' {"assume": "done"} or {"assume": "not-done"}'
)


class DeadRetry(Body):
    """How to retry a dead letter; the body may be left out."""

    assume: Assume | None = Field(
        None,
        description="For the errorClass EffectUnknown: take the call as done, or run it again.",
    )


class DeadPage(Page):
    """Dead letters of one queue."""

    queue: Printable = Field(INBOX, description="The queue: inbox, outbox, memory or one of yours.")
    group: Printable | None = Field(None, description="Only letters of this group, of any queue.")


class DeadData(TypedDict):
    """The message itself."""

    channel: str
    sender: str
    senderId: str | None
    message: str
    messageId: str | None
    agent: str | None


class Dead(TypedDict):
    """A dead letter."""

    id: int
    queue: str
    data: DeadData
    failedReason: str | None
    errorClass: str | None
    traceback: NotRequired[str]
    outcome: str
    attemptsMade: int
    timestamp: int
    finishedAt: int


EXAMPLE: dict[str, Any] = {
    "id": 7,
    "queue": "inbox",
    "data": {
        "channel": "api",
        "sender": "Ada",
        "senderId": None,
        "message": "what broke the build?",
        "messageId": "api_m8boovyb",
        "agent": "coder",
    },
    "failedReason": "RuntimeError: the printer is on fire",
    "errorClass": "RuntimeError",
    "traceback": "Traceback (most recent call last):\n  …\nRuntimeError: the printer is on fire",
    "outcome": "dead",
    "attemptsMade": 5,
    "timestamp": 1767225600000,
    "finishedAt": 1767225660000,
}


@routes.get(
    "/api/queue/dead",
    summary="List dead letters",
    **route_options("read", list[Dead], [EXAMPLE], 400),
)
async def get_dead(request: Request, page: Annotated[DeadPage, Query()]) -> JsonResponse:
    """List dead letters, newest first. `timestamp` is the time of receipt, `finishedAt` the time of
    the last failure. `traceback` is present if the handler raised."""
    state = state_of(request)
    default = (await state.routing()).default
    if page.group is not None:
        found = await _of_group(request, page, page.group)
    else:
        found = await (await visible_reads(request)).dead(
            Filter(queue=page.queue), **page.within(request)
        )
    return list_response(request, found, lambda event: _dead(event, default))


async def _of_group(request: Request, page: DeadPage, group: str) -> Rows[FinishedEvent]:
    await refuse_limited(request)
    store, most_bytes = state_of(request).store, state_of(request).limits.page_bytes
    bounds = page.bounds
    while True:
        ids, has_more = await dead_ids_of(request, group, bounds)
        found = await store.dead(Filter(ids=ids), limit=page.limit, most_bytes=most_bytes)
        found.has_more = has_more or (found.has_more and len(found) < len(ids))
        # Letters that were retried since their ids were read are missing, perhaps all of a page.
        if found or not has_more:
            return found
        bounds["before_id"] = ids[-1]


@routes.post(
    "/api/queue/dead/{id}/retry",
    summary="Retry a dead letter",
    **route_options(
        "admin", Ok, {"ok": True}, 404, 409, body=DeadRetry, given={"assume": "not-done"}
    ),
)
async def retry_dead(request: Request, id: EventId) -> JsonResponse:
    """Make a dead letter live again, with the same id and all attempts. One of the errorClass
    EffectUnknown needs `assume`."""
    store, which = state_of(request).store, Filter(ids=[id])
    assume = (await read_body(request, DeadRetry)).assume
    if not await store.retry(which, actor=actor_of(request), assume=assume):
        is_dead = assume is None and await store.dead(which)
        raise ApiError(409, NEEDS_ASSUME) if is_dead else ApiError(404, NOT_FOUND)
    return JsonResponse(OK)


@routes.delete(
    "/api/queue/dead/{id}",
    summary="Discard a dead letter",
    **route_options("admin", Ok, {"ok": True}, 404),
)
async def discard_dead(request: Request, id: EventId) -> JsonResponse:
    """Delete payload and error. Ids, times and the outcome stay, so that the message id remains
    known."""
    if not await state_of(request).store.discard(Filter(ids=[id]), actor=actor_of(request)):
        raise ApiError(404, NOT_FOUND)
    return JsonResponse(OK)


def _dead(event: FinishedEvent, default: str) -> Dead:
    payload = event.event
    agent = event.target or default if event.queue == INBOX else payload.get("agent")
    data = DeadData(
        channel=channel_of(payload),
        sender=sender_of(payload),
        senderId=payload.get("sender_id" if "kind" in payload else "user"),
        message=written_of(payload),
        messageId=event.message_id,
        agent=agent or None,
    )
    dead = Dead(
        id=event.id,
        queue=event.queue,
        data=data,
        failedReason=event.last_error,
        errorClass=event.error_class,
        outcome=event.outcome,
        attemptsMade=event.attempts,
        timestamp=millis(event.created_at),
        finishedAt=millis(event.finished_at),
    )
    if event.traceback is not None:
        dead["traceback"] = event.traceback
    return dead
