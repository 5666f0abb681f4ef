"""Lets tests wait for calls that the clients of a loopback server make."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

WAIT_WITHIN = 30.0
"""Default time limit of `until`, in seconds."""
CHECK_INTERVAL = 0.02


class Calls:
    """Wakes waiting tests after each call of a client."""

    def __init__(self) -> None:
        self._noted = asyncio.Event()

    def note(self) -> None:
        """Note that a client has called."""
        self._noted.set()

    async def until(self, look: Callable[[], Any], within: float = WAIT_WITHIN) -> Any:
        """Call `look` after every call, and regularly, until it returns something true."""
        async with asyncio.timeout(within):
            while not (found := look()):
                self._noted.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_INTERVAL):
                        await self._noted.wait()
        return found
