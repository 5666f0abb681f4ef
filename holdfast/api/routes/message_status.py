"""The status of one message: how far it is, and everything that agents answered."""

from __future__ import annotations

from typing import Annotated, NotRequired

from fastapi import APIRouter, Path, Request
from starlette.routing import Match
from starlette.types import Scope
from typing_extensions import TypedDict

from holdfast.api.response import ApiError, JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.routes.responses import Response, response_of
from holdfast.api.security.caller import caller_of
from holdfast.api.security.scope import refuse_foreign, sees_agent
from holdfast.api.state import state_of
from holdfast.message import channel_of, conversation_of, written_of
from holdfast.queue.event import Event, payload_to_show
from holdfast.queue.journal import Step
from holdfast.store.chain import Chain, find_message, read_chain


class MessagePart(AuthorizedRoute):
    """A route to a part of a message, such as its stream.

    Ids may contain `/`, percent-encoded, which the decoded path no longer shows: the message
    `a/stream` is not the stream of the message `a`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        part = self.path.rpartition("}")[2].encode()
        if not scope.get("raw_path", part).endswith(part):
            return Match.NONE, {}
        return super().matches(scope)


routes = APIRouter(route_class=AuthorizedRoute, tags=["messages"])

MessageId = Annotated[str, Path(description="The messageId, percent-encoded, `/` too.")]


class StepStatus(TypedDict):
    """A recorded step. `status` is started, done, failed or unknown."""

    key: str
    status: str
    attempt: int
    startedAt: int | None
    endedAt: int | None
    error: NotRequired[str]


class MessageStatus(TypedDict):
    """A message and what came of it.

    `response` is the text of its first response, `partial` the text written so far."""

    messageId: str
    status: str
    agent: str
    channel: str
    conversation: str
    attempts: int
    steps: list[StepStatus]
    open: int
    working: int
    responses: list[Response]
    message: str
    eventId: int
    response: NotRequired[str]
    partial: NotRequired[str]
    generation: NotRequired[int]
    progress: NotRequired[str]
    error: NotRequired[str]


EXAMPLE = {
    "messageId": "api_m8boovyb",
    "status": "completed",
    "agent": "coder",
    "channel": "api",
    "conversation": "api:Ada",
    "attempts": 1,
    "steps": [
        {
            "key": "fetch log",
            "status": "done",
            "attempt": 1,
            "startedAt": 1767225600000,
            "endedAt": 1767225600250,
        }
    ],
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
    """`status` is pending, processing, waiting, completed or dead. `steps` are the recorded steps,
    `partial` is the text written so far, or until the message failed. `responses` has the answers
    of all agents that worked on it, oldest first. `open` counts live messages and responses that
    came of it: at 0 the chain is over. A response that a client has to fetch is live until it is
    acked; `working` counts live messages alone."""
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


async def visible_message(request: Request, id: str) -> Event:
    """Return a message, live or finished. One that the caller may not see is a 404."""
    message = await find_message(state_of(request).store, id) if id.isprintable() else None
    if message is None:
        raise ApiError(404, NOT_FOUND)
    await refuse_foreign(request, message.id, NOT_FOUND)
    return message


def _status(chain: Chain, default: str) -> MessageStatus:
    message, journal = chain.message, chain.journal
    payload = payload_to_show(message)
    status = MessageStatus(
        messageId=message.message_id or str(message.id),
        status=chain.status,
        agent=message.target or default,
        channel=channel_of(payload),
        conversation=conversation_of(payload),
        attempts=message.attempts,
        steps=[_step(step) for step in journal.steps.values()],
        open=chain.open,
        working=chain.working,
        responses=[],
        message=written_of(payload),
        eventId=message.id,
    )
    if chain.own_responses:
        status["response"] = written_of(payload_to_show(chain.own_responses[0]))
    elif journal.text:
        status["partial"], status["generation"] = journal.text, journal.generation
    if chain.status in ("processing", "waiting") and journal.progress:
        status["progress"] = journal.progress
    if chain.status == "dead" and message.last_error:
        status["error"] = message.last_error
    return status


def _step(step: Step) -> StepStatus:
    shown = StepStatus(
        key=step.key,
        status=step.state,
        attempt=step.attempt,
        startedAt=None if step.started_at is None else millis(step.started_at),
        endedAt=None if step.ended_at is None else millis(step.ended_at),
    )
    if step.error:
        shown["error"] = step.error
    return shown
