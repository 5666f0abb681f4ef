"""What lets a waiting consumer look again: a signal, the next due time, or patience running out."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Literal

Reason = Literal["triggered", "due", "timeout"]


class Wake:
    """Level-triggered: set while its owner is busy, it is still set when the owner comes back to wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(
        self, *, poll: timedelta, jitter: timedelta = timedelta(0), due_in: timedelta | None = None
    ) -> Reason:
        """Waits for the signal, at most until something is due or the poll interval ± jitter is over."""
        patience = poll.total_seconds() + random.uniform(-1, 1) * jitter.total_seconds()
        due = due_in is not None and due_in.total_seconds() < patience
        if due_in is not None and due:
            patience = due_in.total_seconds()
        try:
            async with asyncio.timeout(max(patience, 0)):
                await self._event.wait()
        except TimeoutError:
            return "due" if due else "timeout"
        self._event.clear()
        return "triggered"
