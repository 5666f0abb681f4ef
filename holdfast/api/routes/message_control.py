"""Signals to a waiting message, and the stop of a running one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import AfterValidator, Field

from holdfast.api.body import Body, read_body
from holdfast.api.names import Printable, require_text
from holdfast.api.response import OK, ApiError, JsonResponse, Ok
from holdfast.api.route import route_options
from holdfast.api.routes.message_status import MessageId, MessagePart, visible_message
from holdfast.api.routes.queue import BY_API
from holdfast.api.security.caller import actor_of, caller_of
from holdfast.api.security.scope import owns
from holdfast.api.state import state_of
from holdfast.message import channel_of
from holdfast.queue.event import Event, FinishedEvent, payload_to_show

routes = APIRouter(route_class=MessagePart, tags=["messages"])

ENDED = "the message has ended"


class Signal(Body):
    """A signal for a turn that waits, or will wait, for its name."""

    name: Annotated[Printable, AfterValidator(require_text)] = Field(
        description="Name of the signal, as in `turn.signal`."
    )
    value: Any = Field(None, description="Any JSON value; `turn.signal` returns it.")


@routes.post(
    "/api/message/{id:path}/signal",
    summary="Send a signal to a message",
    **route_options(
        "send",
        Ok,
        {"ok": True},
        404,
        409,
        body=Signal,
        given={"name": "paid", "value": {"amount": 12}},
    ),
)
async def signal_message(request: Request, id: MessageId) -> JsonResponse:
    """Keep a signal, and resume the turn of the message if it waits for that name. Signals of one
    name are taken in order, including those that came before the wait."""
    message = await _live_message(request, id)
    signal = await read_body(request, Signal)
    store, actor = state_of(request).store, actor_of(request)
    if not await store.signal(message.id, signal.name, signal.value, actor=actor):
        raise ApiError(409, ENDED)
    return JsonResponse(OK)


@routes.post(
    "/api/message/{id:path}/stop",
    summary="Stop a message",
    **route_options("send", Ok, {"ok": True}, 404, 409),
)
async def stop_message(request: Request, id: MessageId) -> JsonResponse:
    """End a message that runs or waits, as a dead letter with outcome cancelled. The text written
    so far stays as its `partial`. A token of role send stops its own messages, an admin all."""
    message = await _live_message(request, id)
    caller = caller_of(request)
    channel = channel_of(payload_to_show(message))
    if not await owns(request, message.sent_by, channel):
        raise ApiError(403, f"{caller.name!r} may only stop its own messages")
    store, actor = state_of(request).store, actor_of(request)
    if not await store.cancel(message.id, BY_API, actor=actor, leased_only=False):
        raise ApiError(409, ENDED)
    return JsonResponse(OK)


async def _live_message(request: Request, id: str) -> Event:
    message = await visible_message(request, id)
    if isinstance(message, FinishedEvent):
        raise ApiError(409, ENDED)
    return message
