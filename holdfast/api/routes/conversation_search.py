"""Search over conversations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from holdfast.api.paging import GREATEST_ID, next_page_header
from holdfast.api.response import ApiError, JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.routes.conversations import (
    CONVERSATION,
    EVERYTHING,
    ListedConversation,
    shown_conversation,
)
from holdfast.api.security.caller import caller_of
from holdfast.api.security.scope import scope_of
from holdfast.api.state import state_of
from holdfast.store.conversation_search import ConversationSearch, Hit, Snippet
from holdfast.store.scoped import Scope

routes = APIRouter(route_class=AuthorizedRoute, tags=["conversations"])


class SearchQuery(BaseModel):
    """Words to search for."""

    model_config = ConfigDict(frozen=True)

    q: str = Field(min_length=1, max_length=200, description="Words, all of which must occur.")
    limit: int = Field(20, ge=1, le=100, description="Maximum number of conversations.")
    before_id: int | None = Field(
        None, ge=0, le=GREATEST_ID, description="Go on from this `x-next-before-id`."
    )


class ShownSnippet(TypedDict):
    """A piece of a line. `marks` are ranges of code points in its text."""

    lineId: int
    messageId: str
    role: str
    agent: str
    timestamp: int
    text: str
    marks: list[tuple[int, int]]


class FoundConversation(ListedConversation):
    """A conversation with what was found in it."""

    titleMarks: list[tuple[int, int]]  # noqa: N815 - a key of JSON
    snippets: list[ShownSnippet]


FOUND: dict[str, Any] = CONVERSATION | {
    "titleMarks": [[16, 21]],
    "snippets": [
        {
            "lineId": 4,
            "messageId": "web_m8boovyb",
            "role": "assistant",
            "agent": "coder",
            "timestamp": 1767225600000,
            "text": "the build broke at noon",
            "marks": [[4, 9]],
        }
    ],
}


@routes.get(
    "/api/conversations/search",
    summary="Search conversations",
    **route_options("read", list[FoundConversation], [FOUND], 400),
)
async def get_search(request: Request, query: Annotated[SearchQuery, Query()]) -> JsonResponse:
    """List conversations whose title or one of whose lines contains all words, in any case, latest
    first. A request searches 500 conversations at most; the header `x-next-before-id` says where to
    go on, even after an empty page."""
    if not query.q.strip() or "\0" in query.q:
        raise ApiError(400, "q is required")
    scope = await scope_of(request) or EVERYTHING
    found = await ConversationSearch(state_of(request).store).search(
        scope,
        query.q,
        reader=caller_of(request).owner or "",
        limit=query.limit,
        before_id=query.before_id,
    )
    headers = {}
    if found.next_before is not None:
        headers = {
            "x-next-before-id": str(found.next_before),
            **next_page_header(request, "before_id", found.next_before),
        }
    return JsonResponse([_hit(hit, scope) for hit in found.hits], headers=headers)


def _hit(hit: Hit, scope: Scope) -> FoundConversation:
    return FoundConversation(
        **shown_conversation(hit.conversation, scope),
        titleMarks=hit.title_marks,
        snippets=[_snippet(snippet) for snippet in hit.snippets],
    )


def _snippet(snippet: Snippet) -> ShownSnippet:
    return ShownSnippet(
        lineId=snippet.line_id,
        messageId=snippet.message_id,
        role=snippet.role,
        agent=snippet.agent,
        timestamp=millis(snippet.created_at),
        text=snippet.text,
        marks=snippet.marks,
    )
