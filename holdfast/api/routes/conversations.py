"""Conversations that were begun by HTTP: list, change and delete them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import AfterValidator, Field, StringConstraints
from typing_extensions import TypedDict

from holdfast.agents.base import LanePolicy, lane_of
from holdfast.api.body import Body, read_body
from holdfast.api.names import Printable, printable
from holdfast.api.paging import GREATEST_ID, Page, list_response
from holdfast.api.response import ApiError, JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import actor_of, caller_of
from holdfast.api.security.scope import owns, scope_of
from holdfast.api.state import state_of
from holdfast.message import Payload
from holdfast.queue.record import Activity
from holdfast.store.activity import SENT_BY
from holdfast.store.conversations import (
    Conversation,
    ConversationChange,
    Conversations,
)
from holdfast.store.erase import erase_conversation
from holdfast.store.files import conversation_folder
from holdfast.store.scoped import Scope
from holdfast.store.uploads import remove_uploads

routes = APIRouter(route_class=AuthorizedRoute, tags=["conversations"])

NOT_FOUND = "conversation not found"
OTHERS_WRITE = (
    "others write to this conversation, too, and {name} may only see its own messages;"
    " send a `conversation` or `senderId` of your own"
)
EVERYTHING = Scope()
Title = Annotated[
    str, StringConstraints(max_length=200, strip_whitespace=True), AfterValidator(printable)
]

ConversationId = Annotated[
    str, Path(description="The `conversation` of the list, percent-encoded, `/` too.")
]


class ConversationPage(Page):
    """Conversations, latest first."""

    channel: Printable | None = Field(None, description="Only conversations of this channel.")
    archived: bool | None = Field(None, description="Only archived ones, or only others.")
    pinned: bool | None = Field(None, description="Only pinned ones, or only others.")


class ListedConversation(TypedDict):
    """A conversation. `id` is for paging alone, and grows with every use."""

    id: int
    conversation: str
    channel: str
    sender: str
    title: str
    pinned: bool
    archived: bool
    unread: int
    createdAt: int
    updatedAt: int


class ChangedConversation(Body):
    """Changes of a conversation. Fields that are left out stay as they are."""

    title: Title | None = Field(None, description="A title in place of the first message.")
    pinned: bool | None = Field(None, description="Whether it is kept at the top.")
    archived: bool | None = Field(
        None, description="Whether it is put away; the next message takes it back."
    )
    read_to: int | None = Field(
        None, ge=0, le=GREATEST_ID, description="The newest line that the caller has seen."
    )


class DeletedConversation(TypedDict):
    """The conversation is deleted; the numbers of deleted messages, lines and uploaded files."""

    ok: bool
    messages: int
    lines: int
    files: int


CONVERSATION: dict[str, Any] = {
    "id": 5,
    "conversation": "web:ada/trip",
    "channel": "web",
    "sender": "ada",
    "title": "what broke the build?",
    "pinned": False,
    "archived": False,
    "unread": 1,
    "createdAt": 1767225600000,
    "updatedAt": 1767225660000,
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
    of the first message. `unread` counts answers that the caller has not seen, up to 100, in its
    own conversations. A token of role send sees its own."""
    scope = await scope_of(request) or EVERYTHING
    found = await Conversations(state_of(request).store).recent(
        scope,
        reader=caller_of(request).owner or "",
        channel=page.channel,
        archived=page.archived,
        pinned=page.pinned,
        **page.within(request),
    )
    return list_response(request, found, lambda one: shown_conversation(one, scope))


@routes.get(
    "/api/conversations/{id:path}",
    summary="Get a conversation",
    **route_options("read", ListedConversation, CONVERSATION, 404),
)
async def get_conversation(request: Request, id: ConversationId) -> JsonResponse:
    """Return one conversation as the list shows it."""
    scope = await scope_of(request) or EVERYTHING
    return await _found_conversation(request, id, scope)


@routes.post(
    "/api/conversations/{id:path}",
    summary="Change a conversation",
    **route_options(
        "send",
        ListedConversation,
        CONVERSATION,
        404,
        body=ChangedConversation,
        given={"title": "the trip", "pinned": True, "readTo": 17},
    ),
)
async def post_conversation(request: Request, id: ConversationId) -> JsonResponse:
    """Rename, pin or archive a conversation, or note what was read of it. All browsers see it."""
    change = await read_body(request, ChangedConversation)
    scope = await scope_of(request) or EVERYTHING
    state, reader = state_of(request), caller_of(request).owner or ""
    conversations = Conversations(state.store)
    if not id.isprintable() or await conversations.find(id, scope) is None:
        raise ApiError(404, NOT_FOUND)
    fields = ConversationChange(**change.model_dump())
    await conversations.change(id, scope, fields, reader=reader)
    if change.archived:
        # The next message has to take it back.
        state.conversation_notes.forget(id)
    await _publish_change(request, "conversation_changed", id)
    return await _found_conversation(request, id, scope)


@routes.delete(
    "/api/conversations/{id:path}",
    summary="Delete a conversation",
    **route_options(
        "send",
        DeletedConversation,
        {"ok": True, "messages": 2, "lines": 4, "files": 0},
        404,
    ),
)
async def delete_conversation(request: Request, id: ConversationId) -> JsonResponse:
    """Erase a conversation: messages, answers, steps, lines and files. A message that is being
    worked ends. What agents learned from it stays in memory."""
    scope = await scope_of(request) or EVERYTHING
    state = state_of(request)
    await refuse_hidden(request, Conversations(state.store), id, scope)
    owners = await Conversations(state.store).owners(id)
    if not owners:
        raise ApiError(404, NOT_FOUND)
    await state.routing()
    [channel] = set(owners.values())
    for owner in owners:
        if not await owns(request, owner or None, channel):
            name = caller_of(request).name
            raise ApiError(403, f"{name!r} may only delete its own conversations")
    lanes = lanes_of(state.known_lanes, id)
    await _publish_change(request, "conversation_deleted", id)
    erased = await erase_conversation(state.store, id, channel, lanes, actor=actor_of(request))
    state.conversation_notes.forget(id)
    await asyncio.to_thread(_remove_files, state.settings.files, channel, id, erased.files)
    return JsonResponse(
        DeletedConversation(
            ok=True, messages=erased.messages, lines=erased.lines, files=len(erased.files)
        )
    )


def _remove_files(root: FilePath, channel: str, id_: str, uploads: Sequence[str]) -> None:
    remove_uploads(root, uploads)
    shutil.rmtree(conversation_folder(root, channel, id_), ignore_errors=True)


async def _found_conversation(request: Request, id_: str, scope: Scope) -> JsonResponse:
    conversations = Conversations(state_of(request).store)
    reader = caller_of(request).owner or ""
    found = await conversations.find(id_, scope, reader=reader) if id_.isprintable() else None
    if found is None:
        raise ApiError(404, NOT_FOUND)
    return JsonResponse(shown_conversation(found, scope))


async def _publish_change(request: Request, kind: str, conversation: str) -> None:
    """Publish a frame to all pages: a conversation changed."""
    store, frames = state_of(request).store, list[Payload]()
    for owner, channel in (await Conversations(store).owners(conversation)).items():
        frame = {"type": kind, "conversation": conversation, "channel": channel}
        frames.append(frame | ({SENT_BY: owner} if owner else {}))
    await store.put([], records=[Activity(tuple(frames))])


async def refuse_hidden(
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


def lanes_of(policies: Mapping[str, LanePolicy], conversation: str) -> list[str]:
    """Return the lanes in which messages of a conversation wait, by the policies of agents."""
    lanes = (lane_of(agent, conversation, policy) for agent, policy in policies.items())
    return [lane for lane in lanes if lane is not None]


def shown_conversation(one: Conversation, scope: Scope) -> ListedConversation:
    return ListedConversation(
        id=one.id,
        conversation=one.conversation,
        channel=one.channel,
        sender=one.sender,
        # The first message may have been for an agent that this caller may not see.
        title=one.title if scope.agents is None else one.conversation,
        pinned=one.pinned,
        archived=one.archived,
        unread=one.unread,
        createdAt=millis(one.created_at),
        updatedAt=millis(one.updated_at),
    )
