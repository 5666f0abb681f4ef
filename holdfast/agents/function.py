"""Agents that are Python functions, plain or async."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from holdfast.agents.base import Answer
from holdfast.agents.turn import Turn
from holdfast.telemetry import THREAD_RUNS_ON
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

Function = Callable[[Turn], Answer | Awaitable[Answer]]


class FunctionAgent:
    """Answers turns with a function. A plain one runs in a thread, so it does not block others."""

    kind = "function"

    def __init__(self, function: Function) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object may have an async __call__
        )

    async def answer(self, turn: Turn) -> Answer:
        result = (
            self._function(turn) if self._is_async else await _run_in_thread(self._function, turn)
        )
        return await result if inspect.isawaitable(result) else result


async def _run_in_thread(function: Function, turn: Turn) -> Answer | Awaitable[Answer]:
    """Run a plain function in a thread and wait for its end, also when cancelled.

    A thread cannot be stopped, so the turn must not go to another worker while it runs. The thread
    is a daemon: it ends with the process if a stop no longer waits for it."""
    loop, ended, work = (
        asyncio.get_running_loop(),
        asyncio.Event(),
        Future[Answer | Awaitable[Answer]](),
    )

    def run() -> None:
        try:
            work.set_result(function(turn))
        except BaseException as error:  # noqa: BLE001 - any of them is the result
            work.set_exception(error)
        loop.call_soon_threadsafe(ended.set)

    context = contextvars.copy_context()
    threading.Thread(
        target=context.run, args=(run,), name=f"holdfast-{turn.agent}", daemon=True
    ).start()
    while not ended.is_set():
        try:
            await ended.wait()
        except asyncio.CancelledError:
            log.warning(Entry(THREAD_RUNS_ON, agent=turn.agent, event_id=turn.primary.id))
    return work.result()
