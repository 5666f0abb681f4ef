"""Stopping on signals: the first asks for a graceful stop, the second stops at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

AT_ONCE = timedelta(seconds=1)


@contextmanager
def signals(stop: Callable[[], None], task: asyncio.Task[None]) -> Iterator[None]:
    """The first signal asks for a graceful stop, the second stops at once."""
    loop = asyncio.get_running_loop()
    asked = 0

    def on_signal(number: int) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            stop()
            return
        task.cancel()
        # A thread cannot be cancelled, and an agent may refuse to be: neither is waited for.
        loop.call_later(AT_ONCE.total_seconds(), os._exit, 128 + number)

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
