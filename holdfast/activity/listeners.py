"""Listeners: functions of the app that are called with the frames of this process."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from holdfast.activity.frames import TYPES
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.event import NewEvent
from holdfast.store.activity import SUBJECT, received_frames
from holdfast.telemetry import LISTENER_FAILED, LISTENERS_TOO_SLOW
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

Listener = Callable[[Payload], object]

BACKLOG = 10_000
"""Frames that may wait for listeners; further ones are dropped and logged."""
DRAIN_WITHIN = timedelta(seconds=1)
"""Time for listeners to take the frames that wait when the harness stops."""


class Listeners:
    """Calls functions with frames, one frame after the other, in a task of its own.

    A listener that fails or hangs never affects a turn."""

    def __init__(self) -> None:
        self.default = ""
        """The agent of messages that name none."""
        self._by_type: dict[str, list[Listener]] = {}
        self._waiting: asyncio.Queue[Payload] = asyncio.Queue(BACKLOG)

    def __bool__(self) -> bool:
        return bool(self._by_type)

    def add(self, kind: str, listener: Listener) -> None:
        """Call `listener` with frames of this type. Raises HoldfastError for an unknown type."""
        if kind not in TYPES:
            raise HoldfastError(f"there is no event named {kind!r}; known are: {', '.join(TYPES)}")
        self._by_type.setdefault(kind, []).append(listener)

    def publish(self, frame: Payload) -> None:
        """Queue a frame for the listeners of its type."""
        if frame["type"] not in self._by_type:
            return
        published = {"type": frame["type"], "timestamp": time.time_ns() // 1_000_000} | frame
        published.pop(SUBJECT, None)
        try:
            self._waiting.put_nowait(published)
        except asyncio.QueueFull:
            log.warning(Entry(LISTENERS_TOO_SLOW, type=frame["type"]))

    def publish_put(self, events: Sequence[NewEvent], ids: Sequence[int | None]) -> None:
        """Queue the frames of messages that this process stored: received and routed."""
        for frame in received_frames(events, ids):
            received = frame | {"agent": frame["agent"] or self.default}
            self.publish(received)
            self.publish(received | {"type": "agent_routed"})

    async def run(self) -> None:
        """Call listeners until cancelled."""
        while True:
            frame = await self._waiting.get()
            for listener in self._by_type[frame["type"]]:
                await self._call(listener, dict(frame))
            self._waiting.task_done()

    async def drain(self, within: timedelta = DRAIN_WITHIN) -> None:
        """Wait until all queued frames were taken, but no longer than `within`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                await self._waiting.join()

    async def _call(self, listener: Listener, frame: Payload) -> None:
        try:
            is_async = inspect.iscoroutinefunction(listener)
            result = listener(frame) if is_async else await asyncio.to_thread(listener, frame)
            if inspect.isawaitable(result):
                await result
        except (Exception, SystemExit, KeyboardInterrupt):
            log.exception(Entry(LISTENER_FAILED, type=frame["type"]))
