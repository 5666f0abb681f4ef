"""GET /api/message/:id/stream: the answer to one message as it grows, as server-sent events."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response

from holdfast.api.feed import RETRY, Feed, encode
from holdfast.api.response import ApiError
from holdfast.api.route import route_options
from holdfast.api.routes.message_status import MessageId, MessagePart, visible_message
from holdfast.api.security.scope import is_still_allowed
from holdfast.api.state import state_of
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.event import Event
from holdfast.store.answer import Position, read_answer
from holdfast.telemetry import ACTIVITY_READ_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

EXAMPLE = """id: 1.12.0
event: response_delta
data: {"type": "response_delta", "messageId": "api_m8boovyb", "text": "Hello world.", "offset": 0}
"""

routes = APIRouter(route_class=MessagePart, tags=["messages"])


@routes.get(
    "/api/message/{id:path}/stream",
    summary="Stream the answer to a message as it grows",
    response_class=Response,
    **route_options("read", None, EXAMPLE, 400, 404, content="text/event-stream"),
)
async def stream_message(
    request: Request,
    id: MessageId,
    last_event_id: Annotated[str, Header(alias="Last-Event-ID")] = "",
    since: Annotated[str, Query(alias="last_event_id")] = "",
) -> Response:
    """Stream the text of the answer from its beginning, or after `Last-Event-ID`: `response_delta`,
    `response_reset`, `step_start` and `step_done`. The last frame is `response_ready` or
    `message_failed`; then the server closes the stream."""
    feed: Feed = request.app.state.feed
    if feed.is_closed:
        raise ApiError(503, "stopping")
    seen = _read_position(last_event_id or since)
    message = await visible_message(request, id)
    agent = message.target or (await state_of(request).routing()).default
    return _MessageStream(request, message, agent, seen)


def _read_position(text: str) -> Position:
    position = Position.read(text) if text else Position()
    if position is None:
        raise ApiError(400, "Last-Event-ID is not the id of a frame of this stream")
    return position


class _MessageStream(EventSourceResponse):
    """The stream of one client. The connection drops a client that reads too slowly."""

    def __init__(self, request: Request, message: Event, agent: str, seen: Position) -> None:
        self._request = request
        self._message = message
        self._agent = agent
        self._seen = seen
        super().__init__(
            self._chunks(),
            ping=state_of(request).limits.ping_seconds,
            sep="\n",
            ping_message_factory=lambda: ServerSentEvent(comment="still here", sep="\n"),
        )

    async def _chunks(self) -> AsyncIterator[bytes]:
        feed: Feed = self._request.app.state.feed
        poll = state_of(self._request).limits.message_poll
        async with aclosing(feed.wakeups(self._concerns, poll)) as wakeups:
            async for _ in wakeups:
                chunk, is_over = await self._read()
                if chunk:
                    if not await is_still_allowed(self._request):
                        return
                    yield chunk
                if is_over:
                    return

    def _concerns(self, frame: Payload) -> bool:
        name = self._message.message_id
        return frame.get("messageId") == name or name in frame.get("messageIds", ())

    async def _read(self) -> tuple[bytes, bool]:
        """Read the frames that the client has not seen. Returns them, and whether that is all."""
        store = state_of(self._request).store
        try:
            answer = await read_answer(store, self._message, self._agent, self._seen)
        except HoldfastError as error:
            # The client resumes, perhaps at another server.
            log.warning(Entry(ACTIVITY_READ_FAILED, error=error))
            return b"", True
        if answer is None:
            return b"", True
        chunks = []
        now = time.time_ns() // 1_000_000
        for frame, behind in answer.since(self._seen):
            self._seen = behind
            stamped = {"type": frame["type"], "timestamp": now} | frame
            chunks.append(encode(stamped, behind, RETRY))
        return b"".join(chunks), bool(answer.end)
