"""The edits that growing answers share, so that they stay below a platform's rate limit."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

EDITS_PER_MINUTE = 50
"""Edits of one account by all processes; Slack allows about this many calls of the method."""
MINUTE = 60.0
COUNT_PROCESSES_EVERY = 10.0
"""Seconds until the start or end of a process changes the shares of the others."""


class SettingsStore(Protocol):
    """The part of a store by which processes share waits and budgets."""

    async def now(self) -> datetime:
        """Return the time of the store's clock."""

    async def setting(self, key: str) -> Any:
        """Return a stored value, None if there is none."""

    async def set_setting(self, key: str, value: Any) -> None:
        """Store a value for all processes."""

    async def processes(self) -> Sequence[object]:
        """List the processes that work on the store."""


class EditBudget:
    """The edits that this process may make in an account: its share of the limit for all.

    Each open preview keeps one edit in reserve: the one that turns it into the response. So a
    response never waits because of previews, and without budget there is no preview at all."""

    def __init__(
        self,
        store: SettingsStore | None = None,
        per_minute: int = EDITS_PER_MINUTE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._per_minute = self._share = per_minute
        self._clock = clock
        self._count_at = clock()
        self._edited: deque[float] = deque()
        self._open = 0

    async def open(self) -> bool:
        """Reserve the last edit of a preview. Returns False if there is no budget."""
        await self._count_processes()
        if self._remaining < 1:
            return False
        self._open += 1
        return True

    def close(self) -> None:
        """Count the last edit of a preview as made now, by whichever process makes it."""
        self._open -= 1
        self._edited.append(self._clock())

    def take(self) -> bool:
        """Count an edit. Returns False if it must wait."""
        if self._remaining < 1:
            return False
        self._edited.append(self._clock())
        return True

    @property
    def _remaining(self) -> int:
        while self._edited and self._edited[0] <= self._clock() - MINUTE:
            self._edited.popleft()
        return self._share - len(self._edited) - self._open

    async def _count_processes(self) -> None:
        """Divide the limit by the number of processes."""
        if self._store is not None and self._clock() >= self._count_at:
            self._count_at = self._clock() + COUNT_PROCESSES_EVERY
            self._share = self._per_minute // max(len(await self._store.processes()), 1)
