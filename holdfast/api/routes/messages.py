"""POST /api/message: stores a message, then answers 200."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import AfterValidator, Field, StringConstraints

from holdfast.api.body import Body, read_body
from holdfast.api.draft import Draft
from holdfast.api.names import Channel, Name, Printable, Text, printable
from holdfast.api.response import ApiError, JsonResponse, StoredMessage
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.routes.resend import draft_of
from holdfast.api.security.caller import Caller, caller_of
from holdfast.api.security.scope import bound_agent, bound_channel, bound_sender, bound_sender_id
from holdfast.api.state import ApiState, state_of
from holdfast.chat import NewConversation
from holdfast.message import subject_of
from holdfast.routing.directory import waits_for_a_server, waits_for_resume
from holdfast.routing.router import Address, put_message
from holdfast.routing.router import message as new_message

routes = APIRouter(route_class=AuthorizedRoute, tags=["messages"])

RESERVED_PREFIXES = frozenset(
    {
        *("slack", "discord", "telegram", "whatsapp", "matrix", "email"),
        *("internal", "chat", "chatroom", "proactive", "heartbeat", "schedule", "pairing"),
    }
)
"""Prefixes of message ids that channels and Holdfast itself generate."""


def refuse_reserved_prefix(message_id: str) -> str:
    """Refuse ids with a reserved prefix.

    Otherwise a client could use an id that is generated later, and the later message would be
    dropped as a duplicate."""
    prefix = message_id.partition("_")[0].lower()
    if "_" in message_id and prefix in RESERVED_PREFIXES:
        raise ValueError(
            f"the prefix {prefix}_ is reserved for ids that Holdfast generates; choose another"
        )
    return message_id


MessageId = Annotated[
    str,
    StringConstraints(max_length=200),
    AfterValidator(printable),
    AfterValidator(refuse_reserved_prefix),
]


class NewMessage(Body):
    """A message for an agent."""

    message: Text | None = Field(
        None,
        description="The text; `@agent` at its beginning chooses the agent. Required"
        " unless the message has `files` or `regenerates`.",
    )
    agent: Name | None = Field(
        None, description="An agent or a team; wins over `@agent` in the text."
    )
    sender: Name | None = Field(None, description="Name of the sender; default `API`.")
    sender_id: Name | None = Field(
        None, description="Id of the sender, which tells senders of one name apart."
    )
    channel: Channel | None = Field(
        None, description="Channel of the message and its answer; default `api`."
    )
    conversation: Printable | None = Field(
        None,
        description="Name of a conversation; without it a sender has a single one.",
    )
    message_id: MessageId | None = Field(
        None,
        description="Makes a repeated post a 409. Prefixes such as `slack_` are reserved.",
    )
    files: list[Name] = Field(
        default_factory=list, max_length=20, description="Ids of uploaded files to send."
    )
    regenerates: Printable | None = Field(
        None, description="A message of this conversation to ask once more, with its files."
    )
    edits: Printable | None = Field(
        None, description="A message of this conversation that this one replaces."
    )


@routes.post(
    "/api/message",
    summary="Store a message for an agent",
    **route_options(
        "send",
        StoredMessage,
        {"ok": True, "messageId": "api_m8boovyb"},
        404,
        409,
        body=NewMessage,
        given={"message": "@coder what broke the build?", "sender": "Ada"},
    ),
)
async def post_message(request: Request) -> JsonResponse:
    """Store a message, then answer: a crash right after loses nothing. The answer of the agent is a
    response."""
    state = state_of(request)
    message = await read_body(request, NewMessage)
    caller = caller_of(request)
    address = _address(caller, message)
    draft = await _draft(request, message, address)
    text = draft.text
    directory, missing = await state.current.for_message(text, draft.agent)
    routing = directory.routing
    agent = bound_agent(caller, routing, text, draft.agent)
    if agent:
        # Before anything is written: an unknown agent is a 404.
        routing.route_to(agent)
    now = time.monotonic()
    noted = _due_conversation(state, caller, address, text, now)
    id_, stored = await put_message(
        state.store,
        routing,
        text,
        address,
        max_attempts=state.settings.max_attempts,
        agent=agent,
        message_id=message.message_id,
        sent_by=caller.owner,
        records=lambda id_: (*noted, *draft.records(id_, address, caller.owner)),
        files=draft.files,
    )
    for conversation in noted:
        state.conversation_notes.add(conversation, now)
    if stored is None:
        raise ApiError(409, "duplicate messageId", further={"messageId": id_})
    answer = StoredMessage(ok=True, messageId=id_)
    if missing is not None:
        answer["warning"] = waits_for_a_server(missing)
    elif (paused := directory.paused_agent(text, agent)) is not None:
        answer["warning"] = waits_for_resume(paused)
    return JsonResponse(answer)


async def _draft(request: Request, message: NewMessage, address: Address) -> Draft:
    """Return the message to store. Most carry nothing and replace nothing."""
    if not (message.files or message.regenerates or message.edits):
        if message.message is None:
            raise ApiError(400, "message is required")
        return Draft(text=message.message, agent=message.agent)
    return await draft_of(request, message, address)


def _address(caller: Caller, message: NewMessage) -> Address:
    """The address of the sender, within what the caller is bound to."""
    return Address(
        channel=bound_channel(caller, message.channel, "api"),
        sender=bound_sender(caller, message.sender) or "API",
        sender_id=bound_sender_id(caller, message.sender_id) or None,
        topic=message.conversation,
    )


def _due_conversation(
    state: ApiState, caller: Caller, address: Address, text: str, now: float
) -> tuple[NewConversation, ...]:
    """Return the conversation, to be listed with its message; none if it was listed lately."""
    conversation, owner = address.conversation, caller.owner
    if not state.conversation_notes.is_due(conversation, owner, now):
        return ()
    return (
        NewConversation(
            conversation=conversation,
            owner=owner,
            channel=address.channel,
            sender=address.sender,
            subject=subject_of(new_message(text, address)),
            text=text,
        ),
    )
