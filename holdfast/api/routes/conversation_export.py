"""Export of a conversation as Markdown or JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse

from holdfast.api.response import ApiError
from holdfast.api.route import route_options
from holdfast.api.routes.conversation_lines import ConversationLine, shown_lines
from holdfast.api.routes.conversations import (
    EVERYTHING,
    NOT_FOUND,
    ConversationId,
    ListedConversation,
    refuse_hidden,
    shown_conversation,
)
from holdfast.api.routes.message_status import MessagePart
from holdfast.api.security.caller import caller_of
from holdfast.api.security.scope import scope_of
from holdfast.api.state import state_of
from holdfast.queue.pages import PAGE_BYTES
from holdfast.queue.store import Store
from holdfast.store.conversations import Conversations
from holdfast.store.scoped import Scope
from holdfast.store.uploads import shown_name

routes = APIRouter(route_class=MessagePart, tags=["conversations"])

PAGE = 200
ExportFormat = Annotated[Literal["markdown", "json"], Query(description="Kind of the file.")]
TYPES = {"markdown": ("text/markdown; charset=utf-8", "md"), "json": ("application/json", "json")}


@routes.get(
    "/api/conversations/{id:path}/export",
    summary="Export a conversation",
    response_class=Response,
    **route_options("read", None, None, 400, 404, content="text/markdown"),
)
async def get_export(
    request: Request,
    id: ConversationId,
    format: ExportFormat = "markdown",  # noqa: A002
) -> Response:
    """Download a conversation, oldest line first. Messages that no agent has ended yet are left
    out, and so are older versions."""
    store, scope = state_of(request).store, await scope_of(request) or EVERYTHING
    conversations = Conversations(store)
    await refuse_hidden(request, conversations, id, scope)
    found = await conversations.find(id, scope, reader=caller_of(request).owner or "")
    if found is None:
        raise ApiError(404, NOT_FOUND)
    about = shown_conversation(found, scope)
    write = _json if format == "json" else _markdown
    type_, ending = TYPES[format]
    name = quote(shown_name(f"{about['title']}.{ending}".replace("/", "-")))
    return StreamingResponse(
        write(about, _lines(store, id, scope)),
        media_type=type_,
        headers={"content-disposition": f"attachment; filename*=UTF-8''{name}"},
    )


async def _lines(store: Store, id_: str, scope: Scope) -> AsyncIterator[ConversationLine]:
    """Yield all lines, oldest first, a page at a time."""
    since = 0
    while True:
        page = await Conversations(store).lines(
            id_,
            agents=scope.agents,
            limit=PAGE,
            since_id=since,
            most_bytes=PAGE_BYTES,
            oldest_first=True,
        )
        for line in await shown_lines(store, page):
            yield line.shown
        if not page.has_more:
            return
        since = page[-1].id or since


async def _json(
    about: ListedConversation, lines: AsyncIterator[ConversationLine]
) -> AsyncIterator[bytes]:
    yield to_json(about)[:-1] + b',"lines":['
    separator = b""
    async for line in lines:
        yield separator + to_json(line)
        separator = b","
    yield b"]}"


async def _markdown(
    about: ListedConversation, lines: AsyncIterator[ConversationLine]
) -> AsyncIterator[str]:
    yield f"# {about['title']}\n"
    async for line in lines:
        who = line["agent"] if line["role"] == "assistant" else line["sender"]
        to = f" to {line['agent']}" if line.get("handoff") else ""
        yield f"\n## {who}{to}, {_moment(line['timestamp'])}\n\n{line['message']}\n"
        for file in line.get("files", ()):
            yield f"\nFile: {file['name']} ({file['size']} bytes)\n"


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
