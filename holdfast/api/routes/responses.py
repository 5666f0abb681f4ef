"""Responses: listed, fetched and acked by clients, or sent proactively."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NotRequired

from fastapi import APIRouter, Query, Request
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.api.body import Body, read_body
from holdfast.api.names import Channel, Name, Named, Printable, Text
from holdfast.api.paging import EventId, Page, Paged, list_response
from holdfast.api.response import OK, ApiError, JsonResponse, Ok, StoredMessage, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.routes.files import file_ids
from holdfast.api.security.caller import Caller, caller_of
from holdfast.api.security.scope import (
    bound_channel,
    bound_sender,
    bound_sender_id,
    refuse_agents,
    refuse_foreign,
    visible_reads,
)
from holdfast.api.state import state_of
from holdfast.channels.base import response_event
from holdfast.message import Payload
from holdfast.queue.event import OUTBOX, Event, NewEvent, new_id
from holdfast.routing.router import Address
from holdfast.store.files import sendable_path

routes = APIRouter(route_class=AuthorizedRoute, tags=["responses"])


class Response(TypedDict):
    """An answer of an agent, or a proactive message."""

    id: int
    channel: str
    sender: str
    senderId: str | None
    message: str
    originalMessage: str
    timestamp: int
    messageId: str | None
    messageIds: NotRequired[list[str]]
    agent: str | None
    files: NotRequired[list[str]]
    html: NotRequired[str]
    fileIds: NotRequired[list[str]]
    """Ids of the files, for `GET /api/files/:id`."""
    metadata: NotRequired[dict[str, Any]]


class PendingPage(Page):
    """Responses of one channel that no client has acked."""

    limit: int = Field(
        100, ge=1, le=1000, description="Maximum number of rows; a page also ends at 4 MiB."
    )
    channel: Printable = Field(description="The channel.")


class NewResponse(Body):
    """A proactive message."""

    channel: Channel = Field(description="The channel to send it to.")
    sender: Named = Field(description="Name of the recipient.")
    message: Text = Field(description="The text.")
    sender_id: Name | None = Field(
        None, description="Id of the recipient, which tells people of one name apart."
    )
    agent: Name | None = Field(None, description="The agent that sends it.")
    files: list[str] | None = Field(
        None,
        max_length=100,
        description="Files below the files root: shared ones, or of this conversation.",
    )
    metadata: dict[str, Any] | None = Field(
        None, description="Any JSON object, kept with the response."
    )


EXAMPLE = {
    "id": 8,
    "channel": "api",
    "sender": "Ada",
    "senderId": None,
    "message": "the last commit did",
    "originalMessage": "what broke the build?",
    "timestamp": 1767225600000,
    "messageId": "api_m8boovyb",
    "agent": "coder",
}


@routes.get(
    "/api/responses",
    summary="List responses",
    **route_options("read", list[Response], [EXAMPLE], 400),
)
async def get_responses(request: Request, page: Paged) -> JsonResponse:
    """List responses, newest first, acked or not.

    `messageId` is the id of the answered message; if a turn collected several, `messageIds` has all
    of them."""
    found = await (await visible_reads(request)).recent(OUTBOX, **page.within(request))
    return list_response(request, found, response_of)


@routes.get(
    "/api/responses/pending",
    summary="List responses to fetch",
    **route_options("send", list[Response], [EXAMPLE], 400),
)
async def get_pending(request: Request, page: Annotated[PendingPage, Query()]) -> JsonResponse:
    """List responses of a channel, oldest first, without claiming them. They stay until they are
    acked. `messageIds` has the ids of all answered messages if they are several."""
    found = await (await visible_reads(request)).waiting(
        OUTBOX, page.channel, **page.within(request)
    )
    return list_response(request, found, response_of, oldest_first=True)


@routes.post(
    "/api/responses",
    summary="Send a proactive message",
    **route_options(
        "send",
        StoredMessage,
        {"ok": True, "messageId": "proactive_m8boovyb"},
        body=NewResponse,
        given={"channel": "api", "sender": "Ada", "message": "the build is green again"},
    ),
)
async def post_response(request: Request) -> JsonResponse:
    """Store a message, then answer. It is delivered like a response."""
    state = state_of(request)
    new = await read_body(request, NewResponse)
    _refuse_unbound(caller_of(request), new)
    _refuse_foreign(state.settings.files, new)
    while True:
        id_ = new_id("proactive")
        # Draw another id if this one is taken: the message would be dropped as a duplicate.
        if await state.store.put([_proactive(new, id_, caller_of(request).owner)]) != [None]:
            return JsonResponse(StoredMessage(ok=True, messageId=id_))


@routes.post(
    "/api/responses/{id}/ack",
    summary="Acknowledge a response",
    **route_options("send", Ok, {"ok": True}, 404, 409),
)
async def ack(request: Request, id: EventId) -> JsonResponse:
    """Mark a response as fetched. Idempotent; 409 if a channel is delivering it right now."""
    await refuse_foreign(request, id, "response not found")
    match await state_of(request).store.ack(id, OUTBOX):
        case "unknown":
            raise ApiError(404, "response not found")
        case "busy":
            raise ApiError(409, "a channel is delivering this response")
        case "acked":
            return JsonResponse(OK)


def response_of(event: Event) -> Response:
    payload = event.event
    response = Response(
        id=event.id,
        channel=payload.get("channel") or event.target,
        sender=payload.get("sender") or "",
        senderId=payload.get("sender_id"),
        message=payload.get("message") or "",
        originalMessage=payload.get("original_message") or "",
        timestamp=millis(event.created_at),
        messageId=payload.get("message_id"),
        agent=payload.get("agent"),
    )
    if payload.get("message_ids"):
        response["messageIds"] = payload["message_ids"]
    if payload.get("files"):
        response["files"] = payload["files"]
        response["fileIds"] = file_ids(event, payload)
    if payload.get("metadata"):
        response["metadata"] = payload["metadata"]
    return response


def _refuse_unbound(caller: Caller, new: NewResponse) -> None:
    """Refuse channel, recipient and agent that the caller is not bound to."""
    bound_channel(caller, new.channel, new.channel)
    bound_sender(caller, new.sender)
    bound_sender_id(caller, new.sender_id)
    refuse_agents(caller, [new.agent] if new.agent else [])


def _proactive(new: NewResponse, message_id: str, sent_by: str | None) -> NewEvent:
    address = _address(new)
    payload: Payload = {
        "kind": "response",
        "channel": new.channel,
        "conversation": address.conversation,
        "sender": new.sender,
        "sender_id": address.sender_id,
        "message": new.message,
        "original_message": "",
        "message_id": message_id,
        "agent": new.agent,
    }
    further = {name: getattr(new, name) for name in ("files", "metadata") if getattr(new, name)}
    return replace(response_event(payload | further), message_id=message_id, sent_by=sent_by)


def _refuse_foreign(root: Path, new: NewResponse) -> None:
    """Refuse files outside of the files root, or of another conversation."""
    conversation = _address(new).conversation
    for name in new.files or ():
        if sendable_path(root, name, new.channel, conversation) is None:
            raise ApiError(
                400, f"files: {name!r} is not below {root}, or belongs to another conversation"
            )


def _address(new: NewResponse) -> Address:
    return Address(channel=new.channel, sender=new.sender, sender_id=new.sender_id or None)
