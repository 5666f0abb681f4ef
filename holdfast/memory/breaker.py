"""Who cannot be reached is left alone for a while, longer each time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=60)


class Breaker:
    """Open for a while after the index was away, longer each time."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        return asyncio.get_running_loop().time() < self._until

    def open(self) -> timedelta:
        pause = self._pause
        self._until = asyncio.get_running_loop().time() + pause.total_seconds()
        self._pause = min(pause * 2, LONGEST_PAUSE)
        return pause

    def close(self) -> None:
        self._pause, self._until = FIRST_PAUSE, 0.0
