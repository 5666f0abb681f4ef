"""Conversations that were begun by HTTP, and their messages."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.agents.base import lane_of
from holdfast.api.paging import Page, Paged, list_response
from holdfast.api.response import ApiError, JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.routes.messages import Printable
from holdfast.api.security.caller import caller_of
from holdfast.api.security.scope import scope_of
from holdfast.api.state import state_of
from holdfast.routing.router import Routing
from holdfast.store.conversations import Conversation, Conversations, Line, merge_unfinished
from holdfast.store.scoped import Scope

routes = APIRouter(route_class=AuthorizedRoute, tags=["conversations"])

NOT_FOUND = "conversation not found"
OTHERS_WRITE = (
    "others write to this conversation, too, and {name} may only see its own messages;"
    " send a `conversation` or `senderId` of your own"
)
EVERYTHING = Scope()

ConversationId = Annotated[
    str, Path(description="The `conversation` of the list, percent-encoded, `/` too.")
]


class ConversationPage(Page):
    """Conversations, latest first."""

    channel: Printable | None = Field(None, description="Only conversations of this channel.")


class ListedConversation(TypedDict):
    """A conversation. `id` is for paging alone, and grows with every use."""

    id: int
    conversation: str
    channel: str
    sender: str
    title: str
    createdAt: int
    updatedAt: int


class ConversationLine(TypedDict):
    """A message or an answer. `id` is null while a message is in no agent's history yet."""

    id: int | None
    messageId: str
    role: str
    agent: str
    sender: str
    message: str
    timestamp: int
    status: str
    handoff: NotRequired[bool]
    eventId: NotRequired[int]
    error: NotRequired[str]


CONVERSATION: dict[str, Any] = {
    "id": 5,
    "conversation": "web:ada/trip",
    "channel": "web",
    "sender": "ada",
    "title": "what broke the build?",
    "createdAt": 1767225600000,
    "updatedAt": 1767225660000,
}
LINE: dict[str, Any] = {
    "id": 3,
    "messageId": "web_m8boovyb",
    "role": "user",
    "agent": "coder",
    "sender": "ada",
    "message": "what broke the build?",
    "timestamp": 1767225600000,
    "status": "completed",
}


@routes.get(
    "/api/conversations",
    summary="List conversations",
    **route_options("read", list[ListedConversation], [CONVERSATION], 400),
)
async def get_conversations(
    request: Request, page: Annotated[ConversationPage, Query()]
) -> JsonResponse:
    """List conversations begun by `POST /api/message`, the latest first. The title is the beginning
    of the first message. A token of role send sees its own."""
    scope = await scope_of(request) or EVERYTHING
    conversations = Conversations(state_of(request).store)
    found = await conversations.recent(scope, channel=page.channel, **page.within(request))
    return list_response(request, found, lambda one: _conversation(one, scope))


@routes.get(
    "/api/conversations/{id:path}/messages",
    summary="List the messages of a conversation",
    **route_options("read", list[ConversationLine], [LINE], 400, 404),
)
async def get_conversation_messages(
    request: Request, id: ConversationId, page: Paged
) -> JsonResponse:
    """List messages and answers of all agents, newest first. The first page begins with messages
    that are in no agent's history yet. `status` of a message is pending, processing, completed or
    dead; `handoff` marks what an agent wrote to a teammate."""
    state = state_of(request)
    scope = await scope_of(request) or EVERYTHING
    conversations = Conversations(state.store)
    await _refuse_hidden(request, conversations, id, scope)
    routing = await state.routing()
    found = await conversations.lines(id, agents=scope.agents, **page.within(request))
    unfinished = await conversations.unfinished(id, _lanes(routing, id))
    for line in unfinished:
        line.agent = line.agent or routing.default
    seen = [line for line in unfinished if scope.agents is None or line.agent in scope.agents]
    found = merge_unfinished(found, seen, is_first=page.before_id is None)
    if not found and not await conversations.owners(id):
        raise ApiError(404, NOT_FOUND)
    return list_response(request, found, _line)


async def _refuse_hidden(
    request: Request, conversations: Conversations, id_: str, scope: Scope
) -> None:
    """Refuse a conversation that the caller may not see, as if it did not exist."""
    if not id_.isprintable():
        raise ApiError(404, NOT_FOUND)
    if scope == EVERYTHING:
        return
    owners = await conversations.owners(id_)
    channels = set(owners.values()) if scope.channels is None else set(scope.channels)
    is_own = scope.sent_by is None or scope.sent_by in owners
    if not owners or not is_own or not set(owners.values()) <= channels:
        raise ApiError(404, NOT_FOUND)
    if scope.sent_by is not None and len(owners) > 1:
        name = caller_of(request).name
        raise ApiError(403, OTHERS_WRITE.format(name=repr(name)))


def _lanes(routing: Routing, conversation: str) -> list[str]:
    """The lanes in which messages of a conversation wait."""
    lanes = (lane_of(agent, conversation, policy) for agent, policy in routing.lanes.items())
    return [lane for lane in lanes if lane is not None]


def _conversation(one: Conversation, scope: Scope) -> ListedConversation:
    return ListedConversation(
        id=one.id,
        conversation=one.conversation,
        channel=one.channel,
        sender=one.sender,
        # The first message may have been for an agent that this caller may not see.
        title=one.title if scope.agents is None else one.conversation,
        createdAt=millis(one.created_at),
        updatedAt=millis(one.updated_at),
    )


def _line(line: Line) -> ConversationLine:
    shown = ConversationLine(
        id=line.id,
        messageId=line.message_id,
        role=line.role,
        agent=line.agent,
        sender=line.sender,
        message=line.content,
        timestamp=millis(line.created_at),
        status=line.status,
    )
    if line.is_handoff:
        shown["handoff"] = True
    if line.event_id is not None:
        shown["eventId"] = line.event_id
    if line.status == "dead" and line.error:
        shown["error"] = line.error
    return shown
