"""GET /api/messages: messages of all agents, live and finished, by filters."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from holdfast.api.names import Printable
from holdfast.api.paging import Page, next_page_header
from holdfast.api.response import EPOCH, MILLISECOND, JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.scope import scope_of
from holdfast.api.state import state_of
from holdfast.message import (
    channel_of,
    conversation_of,
    sender_id_of,
    sender_of,
    team_of,
)
from holdfast.queue.event import INBOX, Event, FinishedEvent, payload_to_show
from holdfast.routing.handoff import shown_text
from holdfast.store.messages import Ending, MessageFilter, MessagePage, MessageSearch, State
from holdfast.store.pauses import ActivePauses, Pauses

routes = APIRouter(route_class=AuthorizedRoute, tags=["messages"])

SHOWN = 500
"""Characters of a message in the list; the whole is in `GET /api/events/:id`."""
LATEST = (datetime.max.replace(tzinfo=EPOCH.tzinfo) - EPOCH) // MILLISECOND

SearchText = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Moment = Annotated[int, Field(ge=0, le=LATEST - 10**8)]


class MessageQuery(Page):
    """Filters of messages; all that are given must match."""

    limit: int = Field(
        50, ge=1, le=1000, description="Maximum number of rows; a page also ends at 4 MiB."
    )
    agent: Printable | None = Field(None, description="The agent's id.")
    channel: Printable | None = Field(None, description="The channel by which it came.")
    sender: Printable | None = Field(None, description="The sender's name, in any case, or id.")
    state: State | None = Field(None, description="The present state of the message.")
    outcome: Ending | None = Field(None, description="How it ended.")
    text: SearchText | None = Field(None, description="A part of the text, in any case.")
    since: Moment | None = Field(None, description="Received at this time or later, in ms.")
    until: Moment | None = Field(None, description="Received at this time or earlier, in ms.")


class ListedMessage(TypedDict):
    """A message; `message` is the beginning of its text.

    `state` is pending, processing, waiting, completed or dead, `outcome` null while it is live."""

    id: int
    messageId: str | None
    agent: str
    team: str | None
    channel: str
    sender: str
    senderId: str | None
    conversation: str
    message: str
    state: str
    outcome: str | None
    attempts: int
    hops: int
    parentId: int | None
    rootId: int | None
    receivedAt: int
    finishedAt: int | None
    duration: int | None
    error: str | None
    errorClass: str | None
    worker: str | None
    paused: bool


EXAMPLE: dict[str, Any] = {
    "id": 7,
    "messageId": "api_m8boovyb",
    "agent": "coder",
    "team": None,
    "channel": "api",
    "sender": "Ada",
    "senderId": None,
    "conversation": "api:Ada",
    "message": "what broke the build?",
    "state": "completed",
    "outcome": "completed",
    "attempts": 1,
    "hops": 0,
    "parentId": None,
    "rootId": 7,
    "receivedAt": 1767225600000,
    "finishedAt": 1767225604000,
    "duration": 4000,
    "error": None,
    "errorClass": None,
    "worker": "host-4711_x2k4m9qa",
    "paused": False,
}


@routes.get(
    "/api/messages",
    summary="List messages by filters",
    **route_options("read", list[ListedMessage], [EXAMPLE], 400),
)
async def get_messages(request: Request, query: Annotated[MessageQuery, Query()]) -> JsonResponse:
    """List messages, live and finished, newest first. Discarded ones are left out.

    The search is bounded: a page may have few rows or none, and still name the next one by the
    headers `x-next-before-id` and `Link`; `x-searched-to` says how far back the search got, in
    milliseconds."""
    state = state_of(request)
    default = (await state.routing()).default
    search = MessageSearch(state.store, await scope_of(request))
    found = await search.find(_filter(query, default), **query.within(request))
    paused = await Pauses(state.store).all()
    rows = [_listed_message(event, now, default, paused) for event, now in found.messages]
    return JsonResponse(rows, headers=_next_page(request, found))


def _filter(query: MessageQuery, default: str) -> MessageFilter:
    agents = None if query.agent is None else [query.agent]
    return MessageFilter(
        agents=[default, ""] if query.agent == default and agents else agents,
        channel=query.channel,
        sender=query.sender,
        text=query.text,
        state=query.state,
        outcome=query.outcome,
        since=None if query.since is None else EPOCH + query.since * MILLISECOND,
        # The whole millisecond.
        until=None if query.until is None else EPOCH + query.until * MILLISECOND + MICROSECONDS,
    )


MICROSECONDS = timedelta(microseconds=999)


def _next_page(request: Request, found: MessagePage) -> dict[str, str]:
    if found.next_before_id is None:
        return {}
    headers = {"x-next-before-id": str(found.next_before_id)}
    if found.searched_to is not None:
        headers["x-searched-to"] = str(millis(found.searched_to))
    return headers | next_page_header(request, "before_id", found.next_before_id)


def _listed_message(
    event: Event, state: State, default: str, paused: ActivePauses
) -> ListedMessage:
    payload, agent = payload_to_show(event), event.target or default
    finished_at = event.finished_at if isinstance(event, FinishedEvent) else None
    is_paused = paused.find("agent", agent) is not None or paused.has_queue(INBOX)
    return ListedMessage(
        id=event.id,
        messageId=event.message_id,
        agent=agent,
        team=team_of(event) if "kind" in payload or event.routed_team else None,
        channel=channel_of(payload),
        sender=sender_of(payload),
        senderId=sender_id_of(payload),
        conversation=conversation_of(payload),
        message=shown_text(event)[:SHOWN],
        state=state,
        outcome=event.outcome if isinstance(event, FinishedEvent) else None,
        attempts=event.attempts,
        hops=event.hops,
        parentId=event.parent_id,
        rootId=event.root_id,
        receivedAt=millis(event.created_at),
        finishedAt=None if finished_at is None else millis(finished_at),
        duration=None if finished_at is None else _duration(event.created_at, finished_at),
        error=event.last_error,
        errorClass=event.error_class,
        worker=event.holder,
        paused=is_paused and state == "pending",
    )


def _duration(received_at: datetime, finished_at: datetime) -> int:
    return max(0, (finished_at - received_at) // MILLISECOND)
