"""GET /api/events/stream: activity of messages as server-sent events, live and resumable."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response

from holdfast.activity.frames import TYPES
from holdfast.api.dialect import NAMES, Translator
from holdfast.api.feed import RETRY, Cursor, Feed, Watcher, encode
from holdfast.api.response import ApiError
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.scope import frame_filter, is_still_allowed
from holdfast.api.state import state_of
from holdfast.message import Payload
from holdfast.store.activity import FORGOTTEN

OWN = ("connected", "gap")
"""Frames about the stream itself; filters do not apply to them."""
CONVERSATIONS = ("conversation_changed", "conversation_deleted")
"""Frames about conversations, for pages that list them."""


EXAMPLE = """id: 17.0
event: response_ready
data: {"type": "response_ready", "messageId": "api_m8boovyb", "agent": "coder", "channel": "api"}
"""

routes = APIRouter(route_class=AuthorizedRoute, tags=["events"])

Names = Annotated[list[str], Query()]


@routes.get(
    "/api/events/stream",
    summary="Stream events of messages",
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
    dialect: Literal["", "tinyagi"] = "",
) -> Response:
    """Stream events from now on, or after `Last-Event-ID`. Clients that cannot send headers use the
    parameter `last_event_id`. Filters take several names, separated by commas. With
    `dialect=tinyagi`, the stream also has frames with TinyAGI's names, such as `message:done`."""
    feed: Feed = request.app.state.feed
    if feed.is_closed:
        raise ApiError(503, "stopping")
    types, sees = _names(type), await frame_filter(request)
    translator = None
    if dialect:
        names = (await state_of(request).routing()).names
        translator = Translator(names, types)
        _check_types(types, {*TYPES, *CONVERSATIONS, *OWN, *NAMES.values()})
        types = translator.needed_types
    wants = _frame_filter(_names(agent), _names(channel), types, sees)
    given = _read_cursor(last_event_id or since)
    first, following = await feed.span()
    encode_for_client = None if translator is None else translator.encode
    watcher = Watcher(given or Cursor(following), wants, given is None, encode_for_client)
    return _Stream(request, watcher, _reaches(given, first, following), first)


def _read_cursor(text: str) -> Cursor | None:
    if not text:
        return None
    cursor = Cursor.read(text)
    if cursor is None:
        raise ApiError(400, "Last-Event-ID is not the id of an event of this stream")
    return cursor


def _reaches(given: Cursor | None, first: int, following: int) -> bool:
    """Whether all frames since the cursor are stored. A future position is of another database."""
    return given is None or (max(given.position, 1) >= first and given <= Cursor(following))


def _frame_filter(
    agents: set[str], channels: set[str], types: set[str], sees: Callable[[Payload], bool]
) -> Callable[[Payload], bool]:
    _check_types(types, {*TYPES, *CONVERSATIONS, *OWN})

    def wants(frame: Payload) -> bool:
        return (
            frame["type"] != FORGOTTEN
            and sees(frame)
            and (not types or frame["type"] in types)
            and (not channels or _has_any(frame, channels, "channel"))
            and (not agents or _has_any(frame, agents, "agent", "toAgent"))
        )

    return wants


def _check_types(types: set[str], known: set[str]) -> None:
    if unknown := sorted(types - known):
        names = ", ".join(sorted(known))
        raise ApiError(400, f"unknown event type {unknown[0]!r}; known types: {names}")


def _has_any(frame: Payload, names: set[str], *keys: str) -> bool:
    return any(str(frame.get(key)).lower() in names for key in keys)


def _names(texts: Iterable[str]) -> set[str]:
    return {part.strip().lower() for text in texts for part in text.split(",") if part.strip()}


class _Stream(EventSourceResponse):
    """The stream of one client. The connection drops a client that reads too slowly."""

    def __init__(self, request: Request, watcher: Watcher, reaches: bool, first: int) -> None:
        self._request = request
        self._feed: Feed = request.app.state.feed
        self._watcher = watcher
        self._reaches = reaches
        self._first = first
        super().__init__(
            self._chunks(),
            ping=state_of(request).limits.ping_seconds,
            sep="\n",
            ping_message_factory=self._ping_message,
        )

    async def _chunks(self) -> AsyncIterator[bytes]:
        watcher = self._watcher
        yield encode(_own("connected"), watcher.cursor, RETRY)
        if not self._reaches:
            before, watcher.cursor = watcher.cursor, Cursor(self._first)
            yield _gap(before, watcher.cursor)
        async with aclosing(self._feed.watch(watcher, _gap)) as chunks:
            async for chunk in chunks:
                if not await is_still_allowed(self._request):
                    return
                yield chunk

    def _ping_message(self) -> ServerSentEvent:
        """Return a comment, with the id to resume from if all frames since were filtered out."""
        watcher = self._watcher
        moved = watcher.sent > watcher.last_id
        watcher.last_id = watcher.sent
        return ServerSentEvent(
            comment="still here", id=str(watcher.sent) if moved else None, sep="\n"
        )


def _own(kind: str, **further: str) -> Payload:
    return {"type": kind, "timestamp": time.time_ns() // 1_000_000, **further}


def _gap(before: Cursor, after: Cursor) -> bytes:
    return encode(_own("gap", since=str(before)), after)
