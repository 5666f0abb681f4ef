"""Report blocks of the event loop: while one callback runs, nothing else is served."""

from __future__ import annotations

import asyncio
import asyncio.events
import gc
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType

from holdfast.telemetry import LOOP_BLOCKED, LOOP_BLOCKED_SECONDS, LOOP_IS_BLOCKED, LOOP_RUNS_AGAIN
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

PACKAGE = "holdfast."
LOOKS_PER_LIMIT = 4
"""Looks at a callback before it counts as a block: detection is at most a quarter late."""
WORTH_A_SECOND_LINE = 1.0
"""Seconds from which on the end of a block is a line of its own."""
NO_NAME = "unknown"

_RUN = asyncio.events.Handle._run.__code__


class Watchdog:
    """Watch the loop's stack from a thread of its own: the loop does no work for it.

    A callback that still runs after the limit has blocked the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float) -> None:
        self._loop = loop
        self._limit = limit
        self._thread_id = threading.get_ident()
        self._stop = threading.Event()
        self._callback: FrameType | None = None
        self._since = 0.0
        self._culprit: str | None = None
        self._level = logging.WARNING

    def run(self) -> None:
        pause = self._limit / LOOKS_PER_LIMIT
        while not self._stop.wait(pause):
            self._look(time.monotonic())
        self._end(time.monotonic())

    def stop(self) -> None:
        self._stop.set()

    def _look(self, now: float) -> None:
        frame = _frame_of(self._thread_id)
        callback = _callback(frame)
        if callback is not self._callback or callback is None:
            self._end(now)
            self._callback, self._since = callback, now
        elif self._culprit is None and now - self._since >= self._limit:
            self._culprit = culprit(frame)
            # An import blocks once in the life of a process, mostly while it starts.
            self._level = logging.DEBUG if _is_import(frame) else logging.WARNING
            seconds = round(now - self._since, 3)
            log.log(
                self._level,
                Entry(LOOP_IS_BLOCKED, where=self._culprit, at=location(frame), seconds=seconds),
            )

    def _end(self, now: float) -> None:
        """Count a block once it is over: only the loop's thread writes metrics."""
        self._callback = None
        if self._culprit is None:
            return
        where, seconds, self._culprit = self._culprit, now - self._since, None
        if seconds >= WORTH_A_SECOND_LINE:
            log.log(self._level, Entry(LOOP_RUNS_AGAIN, where=where, seconds=round(seconds, 3)))
        with suppress(RuntimeError):
            # The loop may be closed by now.
            self._loop.call_soon_threadsafe(_count, where, seconds)


def _frame_of(thread_id: int) -> FrameType | None:
    """Return the frame that a thread runs now.

    Up to Python 3.11.7 `sys._current_frames` locks the interpreter's list of threads while it
    allocates. A garbage collection in it may give up the GIL, as closing a connection does. A
    thread that starts meanwhile then waits for it for ever, and it for the thread. Hence no
    collections here."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread_id)
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def watching(limit: timedelta) -> Iterator[None]:
    """Watch the running loop meanwhile; a limit of 0 watches nothing."""
    if not limit:
        yield
        return
    watchdog = Watchdog(asyncio.get_running_loop(), limit.total_seconds())
    thread = threading.Thread(target=watchdog.run, name="holdfast-watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watchdog.stop()
        thread.join()


def culprit(frame: FrameType | None) -> str:
    """Name the innermost function of Holdfast on this stack, else the innermost module."""
    innermost = NO_NAME if frame is None else str(frame.f_globals.get("__name__", NO_NAME))
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(PACKAGE) and module != __name__:
            return f"{module}.{frame.f_code.co_qualname}"
        frame = frame.f_back
    return innermost


def location(frame: FrameType | None) -> str:
    """Return the line that the loop's thread runs now, also outside of Holdfast."""
    return (
        NO_NAME
        if frame is None
        else f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
    )


def _callback(frame: FrameType | None) -> FrameType | None:
    """Find the frame of the callback that the loop runs; None while it waits."""
    found = None
    while frame is not None:
        if frame.f_code is _RUN:
            found = frame
        frame = frame.f_back
    return found


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def _count(where: str, seconds: float) -> None:
    LOOP_BLOCKED.add(where)
    LOOP_BLOCKED_SECONDS.add(where, by=seconds)
