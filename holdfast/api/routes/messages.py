"""Messages come in: stored, then answered 200."""

from __future__ import annotations

import time
from typing import Annotated, NotRequired

from fastapi import APIRouter, Request
from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from holdfast.api.body import Body, read_body
from holdfast.api.response import ApiError, JsonResponse
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import Caller, caller_of
from holdfast.api.security.scope import bound_agent, bound_channel, bound_sender, bound_sender_id
from holdfast.api.state import ApiState, state_of
from holdfast.message import subject_of
from holdfast.routing.directory import waits_for_a_server
from holdfast.routing.router import Address, put_message
from holdfast.routing.router import message as new_message
from holdfast.store.conversations import NewConversation

routes = APIRouter(route_class=AuthorizedRoute, tags=["messages"])

LONGEST_NAME = 200
"""Names become a part of index keys, which have a limit of their own."""
RESERVED_PREFIXES = frozenset(
    {
        *("slack", "discord", "telegram", "whatsapp", "matrix", "email"),
        *("internal", "chat", "chatroom", "proactive", "heartbeat", "schedule"),
    }
)
"""First words of the ids of platforms' messages and of those that we make."""


def printable(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("only printable characters are allowed, and at least one")
    return text


def said(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("missing", "is required")
    return text


def refuse_reserved_prefix(message_id: str) -> str:
    """Refuse ids that are a platform's or our own: a client could take one, and the real message would be dropped."""
    prefix = message_id.partition("_")[0].lower()
    if "_" in message_id and prefix in RESERVED_PREFIXES:
        raise ValueError(
            f"ids that begin with {prefix}_ are given by Holdfast itself; choose another"
        )
    return message_id


Name = Annotated[str, StringConstraints(max_length=LONGEST_NAME)]
Printable = Annotated[Name, AfterValidator(printable)]
Named = Annotated[Name, AfterValidator(said)]
Text = Annotated[str, AfterValidator(said)]
Channel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{1,32}$")]
MessageId = Annotated[
    str,
    StringConstraints(max_length=200),
    AfterValidator(printable),
    AfterValidator(refuse_reserved_prefix),
]


class NewMessage(Body):
    """A message for an agent."""

    message: Text = Field(description="The text; `@agent` before it names who shall answer.")
    agent: Name | None = Field(
        None, description="Who shall answer, an agent or a team; wins over `@agent`."
    )
    sender: Name | None = Field(None, description="Who says it; by default `API`.")
    sender_id: Name | None = Field(
        None, description="Tells senders of one name apart: whose conversation it is."
    )
    channel: Channel | None = Field(
        None, description="Where it comes from, and the answer goes; by default `api`."
    )
    conversation: Printable | None = Field(
        None,
        description="Makes a conversation of its own for this sender; without it a sender has one.",
    )
    message_id: MessageId | None = Field(
        None,
        description="Makes a second post of the same message a 409. May not begin with a platform's `slack_`.",
    )


class Stored(TypedDict):
    """The message is stored, whatever happens next."""

    ok: bool
    messageId: str
    warning: NotRequired[str]


@routes.post(
    "/api/message",
    summary="Store a message for an agent",
    **route_options(
        "send",
        Stored,
        {"ok": True, "messageId": "api_m8boovyb"},
        404,
        409,
        body=NewMessage,
        given={"message": "@coder what broke the build?", "sender": "Ada"},
    ),
)
async def post_message(request: Request) -> JsonResponse:
    """Stored before it is answered: a crash right after loses nothing. The answer of the agent is a response."""
    state = state_of(request)
    message = await read_body(request, NewMessage)
    caller = caller_of(request)
    directory, missing = await state.current.for_message(message.message, message.agent)
    routing = directory.routing
    address = _address(caller, message)
    agent = bound_agent(caller, routing, message.message, message.agent)
    if agent:
        # Before anything is written: an unknown agent is a 404.
        routing.given(agent)
    await _note_conversation(state, caller, address, message.message)
    id_, stored = await put_message(
        state.store,
        routing,
        message.message,
        address,
        max_attempts=state.settings.max_attempts,
        agent=agent,
        message_id=message.message_id,
        sent_by=caller.owner,
    )
    if stored is None:
        raise ApiError(409, "duplicate messageId", further={"messageId": id_})
    answer = Stored(ok=True, messageId=id_)
    if missing is not None:
        answer["warning"] = waits_for_a_server(missing)
    return JsonResponse(answer)


def _address(caller: Caller, message: NewMessage) -> Address:
    """The address of the sender, within what the caller is bound to."""
    return Address(
        channel=bound_channel(caller, message.channel, "api"),
        sender=bound_sender(caller, message.sender) or "API",
        sender_id=bound_sender_id(caller, message.sender_id) or None,
        topic=message.conversation,
    )


async def _note_conversation(state: ApiState, caller: Caller, address: Address, text: str) -> None:
    """List the conversation, before its message is stored: a crash between loses nothing."""
    conversation, owner, now = address.conversation, caller.owner, time.monotonic()
    if state.conversation_notes.is_due(conversation, owner, now):
        new = NewConversation(
            conversation=conversation,
            owner=owner,
            channel=address.channel,
            sender=address.sender,
            subject=subject_of(new_message(text, address)),
            text=text,
        )
        await state.conversation_notes.note(state.store, new, now)
