"""Running a process until a signal stops it, gracefully or at once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.process import SIGN_OFF_WITHIN
from holdfast.telemetry import STOP_TIMED_OUT, STOPPED_AT_ONCE
from holdfast.telemetry.logs import Entry

if TYPE_CHECKING:
    from holdfast.app import AgentHarness

log = logging.getLogger(__name__)

FORCED_EXIT_AFTER = timedelta(seconds=1)
"""Time for cancelled tasks to end after a second signal."""


async def is_ready(ready: asyncio.Event, task: asyncio.Task[None]) -> bool:
    """Wait until a process is ready or has ended; return whether it became ready."""
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(ready.wait())
        await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    return ready.is_set()


async def run_until_signal(
    app: AgentHarness,
    running: Coroutine[Any, Any, None],
    ready: asyncio.Event,
    on_ready: Callable[[], None] | None,
) -> None:
    """Run until the app ends; SIGTERM and SIGINT stop it. `on_ready` is called once it is ready."""
    within = app.load_settings().grace + app.limits.ends_within + SIGN_OFF_WITHIN
    async with asyncio.TaskGroup() as group:
        task = group.create_task(running)
        with _signals(lambda: _stop_on_signal(app), task, within):
            if await is_ready(ready, task) and on_ready is not None:
                on_ready()
            await asyncio.wait([task])


def _stop_on_signal(app: AgentHarness) -> None:
    """Ask for a graceful stop, and log how many turns it waits for."""
    if turns := sum(consumer.running for consumer in app.consumers):
        running = "1 turn" if turns == 1 else f"{turns} turns"
        grace = app.load_settings().grace.total_seconds()
        log.warning(Entry(f"waiting for {running} ({grace:g} s), again to stop now"))
    app.stop()


@contextmanager
def _signals(
    stop: Callable[[], None], task: asyncio.Task[None], within: timedelta
) -> Iterator[None]:
    """Stop gracefully on the first signal, in at most `within`, and at once on the second.

    After a second signal the exit code is 128 plus the number of the signal, as a shell expects.
    Threads cannot be cancelled, and agents may ignore a cancellation, so the process exits without
    them. Other processes take over its turns once they see that it is gone."""
    loop = asyncio.get_running_loop()
    exits: list[asyncio.TimerHandle] = []
    codes: list[int] = []

    def on_signal(number: int) -> None:
        first = not exits
        codes.append(128 + number)
        exits.append(
            loop.call_later(
                (within if first else FORCED_EXIT_AFTER).total_seconds(), _exit, codes[-1]
            )
        )
        if first:
            stop()
        else:
            log.warning(Entry(STOPPED_AT_ONCE))
            task.cancel()

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
        # The second timer stays: a thread that cannot be ended may still run.
        for timer in exits[:1]:
            timer.cancel()
    if len(codes) > 1:
        raise SystemExit(codes[-1])


def _exit(code: int) -> None:
    log.warning(Entry(STOP_TIMED_OUT))
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
