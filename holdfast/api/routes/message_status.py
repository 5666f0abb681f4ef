"""The status of one message: how far it is, and everything that agents answered."""

from __future__ import annotations

from typing import Annotated, NotRequired

from fastapi import APIRouter, Path, Query, Request
from starlette.routing import Match
from starlette.types import Scope
from typing_extensions import TypedDict

from holdfast.api.markdown import render_all
from holdfast.api.progress import (
    HandoffStatus,
    Position,
    StepStatus,
    WaitingFor,
    ended_at,
    shown_handoff,
    shown_step,
    started_at,
    sum_usage,
    waiting_for,
)
from holdfast.api.response import ApiError, JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.routes.files import FileInfo, file_info
from holdfast.api.routes.responses import Response, response_of
from holdfast.api.security.caller import Caller, caller_of
from holdfast.api.security.scope import refuse_foreign, sees_agent
from holdfast.api.state import state_of
from holdfast.message import channel_of, conversation_of, written_of
from holdfast.queue.event import Event, payload_to_show
from holdfast.queue.store import Store
from holdfast.store.chain import Chain, find_message, read_chain
from holdfast.store.conversations import Conversations
from holdfast.store.progress import messages_ahead, read_handoffs
from holdfast.store.uploads import Files


class MessagePart(AuthorizedRoute):
    """A route to a part of a message, such as its stream.

    Ids may contain a percent-encoded `/`, so the decoded path cannot tell the message `a/stream`
    from the stream of the message `a`. The end of the raw path can."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        part = self.path.rpartition("}")[2].encode()
        if not scope.get("raw_path", part).endswith(part):
            return Match.NONE, {}
        return super().matches(scope)


routes = APIRouter(route_class=AuthorizedRoute, tags=["messages"])

AsHtml = Annotated[bool, Query(description="Add the texts as HTML, to be inserted as it is.")]
MessageId = Annotated[str, Path(description="The messageId, percent-encoded, `/` too.")]


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
    createdAt: int
    startedAt: int | None
    endedAt: int | None
    handoffs: list[HandoffStatus]
    position: NotRequired[Position]
    waitingFor: NotRequired[WaitingFor]
    tokens: NotRequired[int]
    cost: NotRequired[float]
    files: NotRequired[list[FileInfo]]
    versions: NotRequired[list[str]]
    response: NotRequired[str]
    partial: NotRequired[str]
    generation: NotRequired[int]
    progress: NotRequired[str]
    error: NotRequired[str]
    messageHtml: NotRequired[str]
    responseHtml: NotRequired[str]
    partialHtml: NotRequired[str]


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
            "kind": "step",
            "startedAt": 1767225600000,
            "endedAt": 1767225600250,
            "duration": 250,
        }
    ],
    "open": 0,
    "working": 0,
    "responses": [],
    "message": "what broke the build?",
    "eventId": 7,
    "createdAt": 1767225600000,
    "startedAt": 1767225600100,
    "endedAt": 1767225601000,
    "handoffs": [],
    "response": "the last commit did",
}
NOT_FOUND = "message not found"


@routes.get(
    "/api/message/{id:path}",
    summary="Status of a message, with its responses",
    **route_options("read", MessageStatus, EXAMPLE, 400, 404),
)
async def get_message(request: Request, id: MessageId, html: AsHtml = False) -> JsonResponse:
    """`status` is pending, processing, waiting, completed or dead. `steps` are the recorded steps,
    `partial` is the text written so far, or until the message failed. `responses` has the answers
    of all agents that worked on it, oldest first. `open` counts live messages and responses that
    came of it: at 0 the chain is over. A response that a client has to fetch is live until it is
    acked; `working` counts live messages alone. `position` counts the messages before a pending
    one, `waitingFor` names the signal that a turn waits for, `handoffs` are messages to teammates.
    `tokens` and `cost` are sums over all of them."""
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
    await _add_progress(request, chain, status)
    if html:
        await _add_html(status)
    return JsonResponse(status)


async def visible_message(request: Request, id: str) -> Event:
    """Return a message, live or finished. One that the caller may not see is a 404."""
    message = await find_message(state_of(request).store, id) if id.isprintable() else None
    if message is None:
        raise ApiError(404, NOT_FOUND)
    await refuse_foreign(request, message.id, NOT_FOUND)
    return message


async def _add_progress(request: Request, chain: Chain, status: MessageStatus) -> None:
    """Add position in the queue, awaited signal, hand-offs, usage, files and versions."""
    store, message, caller = state_of(request).store, chain.message, caller_of(request)
    if chain.status == "pending":
        lane, agent = await messages_ahead(store, message)
        status["position"] = Position(lane=lane, agent=agent)
    handed = [
        one
        for one in await read_handoffs(store, message.root_id or message.id)
        if sees_agent(caller, one.event.target)
    ]
    status["handoffs"] = [shown_handoff(one) for one in handed]
    waiting = [message] if chain.status == "waiting" else []
    waiting += [one.event for one in handed if one.status == "waiting"]
    for event in waiting:
        if (wait := await waiting_for(store, event)) is not None:
            status["waitingFor"] = wait
            break
    tokens, cost = sum_usage([chain.journal, *(one.journal for one in handed)])
    if tokens is not None:
        status["tokens"] = tokens
    if cost is not None:
        status["cost"] = cost
    await _add_files(store, status, caller)


async def _add_files(store: Store, status: MessageStatus, caller: Caller) -> None:
    id_ = status["messageId"]
    files = await Files(store).of_messages([id_])
    # An upload has no agent.
    seen = [file for file in files if not file.agent or sees_agent(caller, file.agent)]
    if seen:
        status["files"] = [file_info(file) for file in seen]
    if versions := (await Conversations(store).versions([id_])).get(id_):
        status["versions"] = versions


async def _add_html(status: MessageStatus) -> None:
    texts = [status["message"], status.get("response", ""), status.get("partial", "")]
    of_responses = [response["message"] for response in status["responses"]]
    message, response, partial, *others = await render_all([*texts, *of_responses])
    status["messageHtml"] = message
    if "response" in status:
        status["responseHtml"] = response
    if "partial" in status:
        status["partialHtml"] = partial
    for one, text in zip(status["responses"], others, strict=True):
        one["html"] = text


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
        steps=[shown_step(step) for step in journal.steps.values()],
        open=chain.open,
        working=chain.working,
        responses=[],
        message=written_of(payload),
        eventId=message.id,
        createdAt=millis(message.created_at),
        startedAt=started_at(message),
        endedAt=ended_at(message),
        handoffs=[],
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
