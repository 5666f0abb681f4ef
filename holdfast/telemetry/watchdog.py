"""Detect callbacks that block the event loop: while one runs, the process answers nothing else."""

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
SAMPLES_PER_LIMIT = 4
"""Samples of a callback before it counts as a block, so detection is at most a quarter late."""
LOG_END_AFTER = 1.0
"""Seconds after which the end of a block is logged, too."""
UNKNOWN = "unknown"

_RUN = asyncio.events.Handle._run.__code__


class _Beat:
    """A callback that records that the loop has run it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.has_run = False
        with suppress(RuntimeError):
            # The loop may be closed by now.
            loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self.has_run = True


class Watchdog:
    """Sample the stack of the loop's thread from another thread, at no cost to the loop.

    A callback that still runs after the limit blocks the loop. The frames of uvloop do not show
    where a callback begins, so there the loop has to run one of ours between two samples.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float) -> None:
        self._loop = loop
        self._limit = limit
        self._thread_id = threading.get_ident()
        self._stop = threading.Event()
        self._beat = None if isinstance(loop, asyncio.BaseEventLoop) else _Beat(loop)
        self._callback: FrameType | _Beat | None = None
        self._since = 0.0
        self._culprit: str | None = None
        self._level = logging.WARNING

    def run(self) -> None:
        pause = self._limit / SAMPLES_PER_LIMIT
        while not self._stop.wait(pause):
            self._sample(time.monotonic())
        self._end(time.monotonic())

    def stop(self) -> None:
        self._stop.set()

    def _sample(self, now: float) -> None:
        frame = _frame_of(self._thread_id)
        callback = _find_callback(frame) if self._beat is None else self._pending_beat(self._beat)
        if callback is not self._callback or callback is None:
            self._end(now)
            self._callback, self._since = callback, now
        elif self._culprit is None and now - self._since >= self._limit:
            self._culprit = culprit(frame)
            # An import blocks only once per process, mostly while it starts.
            self._level = logging.DEBUG if _is_import(frame) else logging.WARNING
            seconds = round(now - self._since, 3)
            where = {"where": self._culprit, "at": location(frame)}
            log.log(self._level, Entry(LOOP_IS_BLOCKED, **where, seconds=seconds))

    def _pending_beat(self, beat: _Beat) -> _Beat:
        """Return the beat that the loop has not run yet; the next one if it has run the last."""
        if beat.has_run:
            self._beat = beat = _Beat(self._loop)
        return beat

    def _end(self, now: float) -> None:
        """Count a finished block, in the loop's thread: no other thread may write metrics."""
        self._callback = None
        if self._culprit is None:
            return
        where, seconds, self._culprit = self._culprit, now - self._since, None
        if seconds >= LOG_END_AFTER:
            log.log(self._level, Entry(LOOP_RUNS_AGAIN, where=where, seconds=round(seconds, 3)))
        with suppress(RuntimeError):
            # The loop may be closed by now.
            self._loop.call_soon_threadsafe(_count_block, where, seconds)


def _frame_of(thread_id: int) -> FrameType | None:
    """Return the frame that a thread runs now.

    Garbage collection is off meanwhile. Up to Python 3.11.7 `sys._current_frames` holds the lock
    on the interpreter's list of threads while it allocates. If that triggers a collection which
    releases the GIL, for example by closing a connection, a thread that is just starting can
    deadlock with this one."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread_id)
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def watch_loop(limit: timedelta) -> Iterator[None]:
    """Watch the running loop during the block. A limit of 0 turns the watchdog off."""
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
    """Return the innermost function of Holdfast on this stack, else the innermost module."""
    innermost = UNKNOWN if frame is None else str(frame.f_globals.get("__name__", UNKNOWN))
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(PACKAGE) and module != __name__:
            return f"{module}.{frame.f_code.co_qualname}"
        frame = frame.f_back
    return innermost


def location(frame: FrameType | None) -> str:
    """Return file, line and function of a frame, inside or outside of Holdfast."""
    return (
        UNKNOWN
        if frame is None
        else f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
    )


def _find_callback(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the callback that the loop runs, or None while it waits."""
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


def _count_block(where: str, seconds: float) -> None:
    LOOP_BLOCKED.add(where)
    LOOP_BLOCKED_SECONDS.add(where, by=seconds)
