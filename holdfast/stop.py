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

from holdfast.telemetry import CUT_SHORT, STOPPED_AT_ONCE
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

AT_ONCE = timedelta(seconds=1)


@contextmanager
def signals(
    stop: Callable[[], None], task: asyncio.Task[None], within: timedelta
) -> Iterator[None]:
    """The first signal asks for a graceful stop, over `within` that time at most. The second stops at once, and the
    process exits with 128 and the number of the signal, as a shell expects.

    A thread cannot be cancelled, and an agent may refuse to be: neither is waited for. Others see that this process
    is gone, and only then take the turns it held."""
    loop = asyncio.get_running_loop()
    cuts: list[asyncio.TimerHandle] = []
    codes: list[int] = []

    def on_signal(number: int) -> None:
        first = not cuts
        codes.append(128 + number)
        cuts.append(
            loop.call_later((within if first else AT_ONCE).total_seconds(), _exit, codes[-1])
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
        # The second cut stays: what is left may be a thread that nobody can end.
        for cut in cuts[:1]:
            cut.cancel()
    if len(codes) > 1:
        raise SystemExit(codes[-1])


def _exit(code: int) -> None:
    log.warning(Entry(CUT_SHORT))
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
