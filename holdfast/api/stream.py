"""GET /api/events/stream: what happens to messages, live and resumable, as server-sent events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response

from holdfast.activity.frames import TYPES
from holdfast.api.feed import Cursor, Feed, Watcher, encoded
from holdfast.api.response import ApiError
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.scope import frame_filter, is_still_allowed
from holdfast.message import Payload
from holdfast.store.activity import FORGOTTEN

PING = 15
"""Seconds between comments, so that nobody on the way takes the stream for dead."""
RETRY = 1000
"""Milliseconds after which a browser comes again."""
OWN = ("connected", "gap")
"""What is told to one client of its own stream; no filter holds it back."""


EXAMPLE = """id: 17.0
event: response_ready
data: {"type": "response_ready", "messageId": "api_m8boovyb", "agent": "coder", "channel": "api", "sender": "API"}
"""

routes = APIRouter(route_class=AuthorizedRoute, tags=["events"])

Names = Annotated[list[str], Query()]


@routes.get(
    "/api/events/stream",
    summary="What happens to messages, live",
    response_class=Response,
    **route_options("read", None, EXAMPLE, 400, content="text/event-stream"),
)
async def events(
    request: Request,
    agent: Names = [],  # noqa: B006 - FastAPI copies it
    channel: Names = [],  # noqa: B006
    type: Names = [],  # noqa: A002, B006
    last_event_id: Annotated[str, Header(alias="Last-Event-ID")] = "",
    since: Annotated[str, Query(alias="last_event_id")] = "",
) -> Response:
    """Everything from now on, or since Last-Event-ID (`last_event_id` where a client cannot send headers). Filters take
    several names, by comma."""
    feed: Feed = request.app.state.feed
    if feed.is_closed:
        raise ApiError(503, "stopping")
    wants = _wanted(_names(agent), _names(channel), _names(type), await frame_filter(request))
    given = _given(last_event_id or since)
    first, following = await feed.span()
    watcher = Watcher(given or Cursor(following), wants, is_fresh=given is None)
    return _Stream(request, watcher, _reaches(given, first, following), first)


def _given(text: str) -> Cursor | None:
    if not text:
        return None
    cursor = Cursor.read(text)
    if cursor is None:
        raise ApiError(400, "Last-Event-ID is not the id of an event of this stream")
    return cursor


def _reaches(given: Cursor | None, first: int, following: int) -> bool:
    """Whether all that came after it is still there; a position yet to come is another database's."""
    return given is None or (max(given.position, 1) >= first and given <= Cursor(following))


def _wanted(
    agents: set[str], channels: set[str], types: set[str], sees: Callable[[Payload], bool]
) -> Callable[[Payload], bool]:
    if unknown := sorted(types - {*TYPES, *OWN}):
        raise ApiError(
            400, f"there is no event named {unknown[0]!r}; known are: {', '.join((*TYPES, *OWN))}"
        )

    def wants(frame: Payload) -> bool:
        return (
            frame["type"] != FORGOTTEN
            and sees(frame)
            and (not types or frame["type"] in types)
            and (not channels or str(frame.get("channel")).lower() in channels)
            and (
                not agents
                or any(str(frame.get(key)).lower() in agents for key in ("agent", "toAgent"))
            )
        )

    return wants


def _names(texts: Iterable[str]) -> set[str]:
    return {part.strip().lower() for text in texts for part in text.split(",") if part.strip()}


class _Stream(EventSourceResponse):
    """One client's stream. The connection drops a client that is too slow: it comes again."""

    def __init__(self, request: Request, watcher: Watcher, reaches: bool, first: int) -> None:
        self._request = request
        self._feed: Feed = request.app.state.feed
        self._watcher = watcher
        self._reaches = reaches
        self._first = first
        super().__init__(self._told(), ping=PING, sep="\n", ping_message_factory=self._ping_message)

    async def _told(self) -> AsyncIterator[bytes]:
        watcher = self._watcher
        yield encoded(_own("connected"), watcher.cursor, RETRY)
        if not self._reaches:
            before, watcher.cursor = watcher.cursor, Cursor(self._first)
            yield _gap(before, watcher.cursor)
        async with aclosing(self._feed.watch(watcher, _gap)) as chunks:
            async for chunk in chunks:
                if not await is_still_allowed(self._request):
                    return
                yield chunk

    def _ping_message(self) -> ServerSentEvent:
        """A comment; where all that came was filtered out, with the id to resume from, which is no event either."""
        watcher = self._watcher
        moved = watcher.sent > watcher.heard
        watcher.heard = watcher.sent
        return ServerSentEvent(
            comment="still here", id=str(watcher.sent) if moved else None, sep="\n"
        )


def _own(kind: str, **further: str) -> Payload:
    return {"type": kind, "timestamp": time.time_ns() // 1_000_000, **further}


def _gap(before: Cursor, after: Cursor) -> bytes:
    return encoded(_own("gap", since=str(before)), after)
