"""The messages of a conversation, with the answers of all agents."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, NotRequired

from fastapi import APIRouter, Query, Request
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.api.markdown import PAGE_BYTES, render_all
from holdfast.api.names import Printable
from holdfast.api.paging import ByteBounds, Page, list_response
from holdfast.api.response import ApiError, JsonResponse, millis
from holdfast.api.route import route_options
from holdfast.api.routes.conversations import (
    EVERYTHING,
    NOT_FOUND,
    ConversationId,
    lanes_of,
    refuse_hidden,
)
from holdfast.api.routes.files import FileInfo, file_info
from holdfast.api.routes.message_status import MessagePart
from holdfast.api.security.scope import scope_of
from holdfast.api.state import state_of
from holdfast.queue.pages import Page as Rows
from holdfast.queue.store import Store
from holdfast.store.conversations import Conversations, Line, merge_unfinished
from holdfast.store.scoped import Scope
from holdfast.store.uploads import Files

routes = APIRouter(route_class=MessagePart, tags=["conversations"])


class LinePage(Page):
    """Lines of a conversation, newest first."""

    html: bool = Field(False, description="Add each line as HTML, to be inserted as it is.")
    versions_of: Printable | None = Field(
        None,
        alias="versionsOf",
        description="Only this message, with its earlier versions and their answers.",
    )

    def within(self, request: Request) -> ByteBounds:
        """Return the bounds. A page that is rendered has fewer bytes."""
        bounds = super().within(request)
        return {**bounds, "most_bytes": PAGE_BYTES} if self.html else bounds


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
    origin: str
    html: NotRequired[str]
    files: NotRequired[list[FileInfo]]
    versions: NotRequired[list[str]]
    handoff: NotRequired[bool]
    eventId: NotRequired[int]
    error: NotRequired[str]


class ShownLine(NamedTuple):
    """A line as the client gets it, and the id by which pages follow each other."""

    id: int
    shown: ConversationLine


LINE: dict[str, Any] = {
    "id": 3,
    "messageId": "web_m8boovyb",
    "role": "user",
    "agent": "coder",
    "sender": "ada",
    "message": "what broke the build?",
    "timestamp": 1767225600000,
    "status": "completed",
    "origin": "web_m8boovyb",
}


@routes.get(
    "/api/conversations/{id:path}/messages",
    summary="List the messages of a conversation",
    **route_options("read", list[ConversationLine], [LINE], 400, 404),
)
async def get_conversation_messages(
    request: Request, id: ConversationId, page: Annotated[LinePage, Query()]
) -> JsonResponse:
    """List messages and answers of all agents, newest first. The first page begins with messages
    that are in no agent's history yet. `status` of a message is pending, processing, completed or
    dead; `handoff` marks what an agent wrote to a teammate. `versions` names a message that was
    edited or asked again, oldest version first; only the last one is listed."""
    store = state_of(request).store
    scope = await scope_of(request) or EVERYTHING
    conversations = Conversations(store)
    await refuse_hidden(request, conversations, id, scope)
    named = None
    if page.versions_of is not None:
        versions = await conversations.versions([page.versions_of])
        named = versions.get(page.versions_of, [page.versions_of])
    found = await conversations.lines(
        id, agents=scope.agents, message_ids=named, **page.within(request)
    )
    if named is None:
        unfinished = await _unfinished_lines(request, conversations, id, scope)
        found = merge_unfinished(found, unfinished, is_first=page.before_id is None)
    if not found and not await conversations.owners(id):
        raise ApiError(404, NOT_FOUND)
    return list_response(request, await shown_lines(store, found, html=page.html), _as_shown)


async def _unfinished_lines(
    request: Request, conversations: Conversations, id_: str, scope: Scope
) -> list[Line]:
    """List messages that wait, are worked or are dead, as far as the caller may see them."""
    state = state_of(request)
    routing = await state.routing()
    unfinished = await conversations.unfinished_lines(id_, lanes_of(state.known_lanes, id_))
    for line in unfinished:
        line.agent = line.agent or routing.default
    return [line for line in unfinished if scope.agents is None or line.agent in scope.agents]


async def shown_lines(store: Store, found: Rows[Line], *, html: bool = False) -> Rows[ShownLine]:
    """Return lines as clients get them, with their files and versions."""
    lines: Rows[ShownLine] = found.map(lambda line: ShownLine(line.id or 0, _line(line)))
    versions = await Conversations(store).versions([line.origin for line in found])
    files = await _files_by_line(store, found)
    texts = await render_all([line.content for line in found]) if html else None
    for at, (line, shown) in enumerate(zip(found, lines, strict=True)):
        if line.origin in versions:
            shown.shown["versions"] = versions[line.origin]
        if own := files.get(_file_key(line)):
            shown.shown["files"] = own
        if texts is not None:
            shown.shown["html"] = texts[at]
    return lines


async def _files_by_line(store: Store, found: Rows[Line]) -> dict[tuple[str, str], list[FileInfo]]:
    """Return the files of lines, by message and, for answers, by agent."""
    files: dict[tuple[str, str], list[FileInfo]] = {}
    names = list(dict.fromkeys(line.message_id for line in found))
    for file in await Files(store).of_messages(names):
        files.setdefault((file.message_id or "", file.agent), []).append(file_info(file))
    return files


def _file_key(line: Line) -> tuple[str, str]:
    return line.message_id, line.agent if line.role == "assistant" else ""


def _as_shown(line: ShownLine) -> ConversationLine:
    return line.shown


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
        origin=line.origin,
    )
    if line.is_handoff:
        shown["handoff"] = True
    if line.event_id is not None:
        shown["eventId"] = line.event_id
    if line.status == "dead" and line.error:
        shown["error"] = line.error
    return shown
