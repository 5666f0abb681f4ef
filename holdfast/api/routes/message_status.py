"""The status of one message: how far it is, and everything that agents answered."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from fastapi import APIRouter, Path, Request
from typing_extensions import TypedDict

from holdfast.api.response import ApiError, JsonResponse
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.routes.responses import Response, response_of
from holdfast.api.security.caller import caller_of
from holdfast.api.security.scope import refuse_foreign, sees_agent
from holdfast.api.state import state_of
from holdfast.message import channel_of, conversation_of, written_of
from holdfast.queue.event import payload_to_show
from holdfast.store.chain import Chain, read_chain

routes = APIRouter(route_class=AuthorizedRoute, tags=["messages"])

MessageId = Annotated[str, Path(description="The messageId, percent-encoded, `/` too.")]


class MessageStatus(TypedDict):
    """A message and what came of it. `response` is the text of its first response."""

    messageId: str
    status: str
    agent: str
    channel: str
    conversation: str
    attempts: int
    steps: list[dict[str, Any]]
    open: int
    working: int
    responses: list[Response]
    message: str
    eventId: int
    response: NotRequired[str]
    partial: NotRequired[str]
    error: NotRequired[str]


EXAMPLE = {
    "messageId": "api_m8boovyb",
    "status": "completed",
    "agent": "coder",
    "channel": "api",
    "conversation": "api:Ada",
    "attempts": 1,
    "steps": [],
    "open": 0,
    "working": 0,
    "responses": [],
    "message": "what broke the build?",
    "eventId": 7,
    "response": "the last commit did",
}
NOT_FOUND = "message not found"


@routes.get(
    "/api/message/{id:path}",
    summary="Status of a message, with its responses",
    **route_options("read", MessageStatus, EXAMPLE, 404),
)
async def get_message(request: Request, id: MessageId) -> JsonResponse:
    """`status` is pending, processing, completed or dead. `responses` has the answers of all agents
    that worked on it, oldest first. `open` counts live messages and responses that came of it: at 0
    the chain is over. A response that a client has to fetch is live until it is acked; `working`
    counts live messages alone."""
    if not id:
        raise ApiError(404, "Not found")
    state = state_of(request)
    chain = await read_chain(state.store, id) if id.isprintable() else None
    if chain is None:
        raise ApiError(404, NOT_FOUND)
    await refuse_foreign(request, chain.message.id, NOT_FOUND)
    status = _status(chain, (await state.routing()).default)
    caller = caller_of(request)
    status["responses"] = [
        response_of(event)
        for event in chain.responses
        if sees_agent(caller, payload_to_show(event).get("agent") or "")
    ]
    return JsonResponse(status)


def _status(chain: Chain, default: str) -> MessageStatus:
    message = chain.message
    payload = payload_to_show(message)
    status = MessageStatus(
        messageId=message.message_id or str(message.id),
        status=chain.status,
        agent=message.target or default,
        channel=channel_of(payload),
        conversation=conversation_of(payload),
        attempts=message.attempts,
        steps=[],
        open=chain.open,
        working=chain.working,
        responses=[],
        message=written_of(payload),
        eventId=message.id,
    )
    if chain.own_responses:
        status["response"] = written_of(payload_to_show(chain.own_responses[0]))
    if chain.status == "dead" and message.last_error:
        status["error"] = message.last_error
    return status
