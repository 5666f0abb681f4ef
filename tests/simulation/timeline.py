"""Virtual time: one timeline, and an event loop for every simulated process on it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import time
import weakref
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Any
from unittest import mock

from holdfast.queue.policy import TargetGroup
from holdfast.queue.settler import HeldTurn

CLOSE_TRIES = 5
CODE_TAKES = 2e-6
"""Virtual seconds that code takes between two waits, so that no loop stands still in time."""


class Timeline:
    """Runs actions in the order of their times. Time jumps from one to the next."""

    def __init__(self) -> None:
        self.now = 0.0
        self._actions: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Run an action at a later time; actions of the same time run in the order given."""
        heapq.heappush(self._actions, (self.now + seconds, next(self._numbers), action))

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Run all actions up to a time, or until there is nothing left to happen."""
        while self._actions and self._actions[0][0] <= until and not is_over():
            at, _, action = heapq.heappop(self._actions)
            self.now = max(self.now, at)
            action()


class ProcessLoop(asyncio.BaseEventLoop):
    """The event loop of one simulated process, which can be suspended and killed at any time.

    `behind` is how much its monotonic clock lost while its machine was suspended."""

    def __init__(self, timeline: Timeline, fail: Callable[[str], None]) -> None:
        super().__init__()
        self.timeline = timeline
        self.behind = 0.0
        self.is_suspended = False
        self._wakes_at = float("inf")
        self._own_tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.set_exception_handler(lambda _, context: fail(_described(context)))

    def time(self) -> float:
        return self.timeline.now - self.behind

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        self._wake_in(0)
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        self._wake_in(when - self.time())
        return handle

    def create_task(self, *args: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(*args, **options)
        self._own_tasks.add(task)
        return task

    def suspend(self) -> None:
        """Stop the process where it is, as SIGSTOP does."""
        self.is_suspended = True

    def resume(self, *, lost: float = 0.0) -> None:
        """Let it go on; `lost` seconds did not count for its clock."""
        self.is_suspended = False
        self.behind += lost
        self._wakes_at = float("inf")
        self._wake_in(0)

    def kill(self) -> None:
        """End the process as SIGKILL does: nothing of it runs again, not even a `finally`."""
        self.is_suspended, self._wakes_at = True, float("-inf")

    def _wake_in(self, seconds: float) -> None:
        at = self.timeline.now + max(seconds, 0.0)
        if at < self._wakes_at and not self.is_suspended:
            self._wakes_at = at
            self.timeline.after(max(seconds, 0.0), lambda: self._turn(at))

    def _turn(self, at: float) -> None:
        """Run everything that is due, unless an earlier wake-up has done so."""
        if self.is_suspended or at != self._wakes_at:
            return
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]
        events._set_running_loop(self)
        try:
            while ready or (timers and self._is_due(timers[0])):
                self.timeline.now += CODE_TAKES
                while timers and self._is_due(timers[0]):
                    handle = heapq.heappop(timers)
                    handle._scheduled = False
                    ready.append(handle)
                while ready:
                    handle = ready.popleft()
                    if not handle._cancelled:
                        handle._run()
                    if self._is_stopped():
                        return
        finally:
            events._set_running_loop(None)
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        self._wakes_at = float("inf")
        if timers:
            self._wake_in(timers[0]._when - self.time())

    def _is_stopped(self) -> bool:
        # A message may have killed the process meanwhile.
        return self.is_suspended

    def _is_due(self, timer: asyncio.TimerHandle) -> bool:
        # Sums of floats differ in their last digits.
        return timer.when() <= self.time() + CODE_TAKES

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when they reach the top of the heap."""

    def discard(self) -> None:
        """Close the coroutines that still wait, so that none is found unfinished later."""
        self.kill()
        for task in [task for task in self._own_tasks if not task.done()]:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            for _ in range(CLOSE_TRIES):
                with suppress(RuntimeError, BaseExceptionGroup):
                    task.get_coro().close()
                    break
        self.close()


def _described(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception')!r}"


@contextmanager
def virtual(timeline: Timeline, seed: int) -> Iterator[None]:
    """Patch the clock, randomness and the hashes that order sets, for the length of the block."""

    def monotonic() -> float:
        loop = events._get_running_loop()
        return loop.time() if isinstance(loop, ProcessLoop) else timeline.now

    state = random.getstate()
    random.seed(seed)
    try:
        with (
            mock.patch.object(time, "monotonic", monotonic),
            mock.patch.object(HeldTurn, "__hash__", lambda held: held.turn.fence),
            mock.patch.object(TargetGroup, "__hash__", lambda group: hash(group.lease)),
        ):
            yield
    finally:
        random.setstate(state)
