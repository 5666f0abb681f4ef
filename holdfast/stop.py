"""Stopping on signals: the first asks for a graceful stop in bounded time, the second stops at once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from holdfast.telemetry import CUT_SHORT
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

AT_ONCE = timedelta(seconds=1)


@contextmanager
def signals(stop: Callable[[], None], task: asyncio.Task[None], within: timedelta) -> Iterator[None]:
    """The first signal asks for a graceful stop, over `within` that time at most; the second stops at once.

    A thread cannot be cancelled, and an agent may refuse to be: neither is waited for. Others see that this process
    is gone, and only then take the turns it held."""
    loop = asyncio.get_running_loop()
    cuts: list[asyncio.TimerHandle] = []

    def on_signal(number: int) -> None:
        first = not cuts
        cuts.append(loop.call_later((within if first else AT_ONCE).total_seconds(), _exit, 128 + number))
        if first:
            stop()
        else:
            task.cancel()

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
        # The second cut stays: what is left may be a thread that nobody can end.
        for cut in cuts[:1]:
            cut.cancel()


def _exit(code: int) -> None:
    log.warning(Entry(CUT_SHORT))
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
