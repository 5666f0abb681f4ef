"""Run plain functions of users in threads, so that they do not block other turns."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from inspect import CO_COROUTINE
from types import FunctionType
from typing import Any, TypeVar

from holdfast.telemetry import THREAD_RUNS_ON
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

Result = TypeVar("Result")


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call only makes a coroutine or async generator, and runs no code yet."""
    if isinstance(function, FunctionType) and function.__code__.co_flags & CO_COROUTINE:
        return True
    # An object may have an async __call__.
    called = (function, getattr(function, "__call__", None))  # noqa: B004
    return any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in called
    )


async def run_in_thread(call: Callable[[], Result], *, agent: str, event_id: int) -> Result:
    """Run a plain function in a thread and wait for its end, even when cancelled.

    A thread cannot be stopped, so the turn must not go to another worker while it runs. The thread
    is a daemon: it ends with the process if a stop no longer waits for it."""
    loop, ended, work = asyncio.get_running_loop(), asyncio.Event(), Future[Result]()

    def run() -> None:
        try:
            work.set_result(call())
        except BaseException as error:  # noqa: BLE001 - any of them is the result
            work.set_exception(error)
        loop.call_soon_threadsafe(ended.set)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name=f"holdfast-{agent}", daemon=True).start()
    while not ended.is_set():
        try:
            await ended.wait()
        except asyncio.CancelledError:
            log.warning(Entry(THREAD_RUNS_ON, agent=agent, event_id=event_id))
    return work.result()
