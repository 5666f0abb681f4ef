"""An agent that is a Python function, plain or async."""

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
    """A plain function runs in a thread, so that it holds up nobody else."""

    kind = "function"

    def __init__(self, function: Function) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object may be called like a coroutine function
        )

    async def answer(self, turn: Turn) -> Answer:
        result = self._function(turn) if self._is_async else await _outlast(self._function, turn)
        return await result if inspect.isawaitable(result) else result


async def _outlast(function: Function, turn: Turn) -> Answer | Awaitable[Answer]:
    """Runs a plain function to its end, whoever cancels: while its thread runs, nobody else may have the turn.

    The thread is a daemon: where a stop does not wait for it any longer, it ends with the process."""
    loop, ended, work = (
        asyncio.get_running_loop(),
        asyncio.Event(),
        Future[Answer | Awaitable[Answer]](),
    )

    def run() -> None:
        try:
            work.set_result(function(turn))
        except BaseException as error:  # noqa: BLE001 - all are ends of its turn
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
