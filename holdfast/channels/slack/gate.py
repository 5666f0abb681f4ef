"""Slack's Retry-After, for each method of a workspace, obeyed by all workers of all processes."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta
from typing import Any, Protocol

from holdfast.channels.base import NotNow

LOOK_EVERY = 1.0
"""Seconds after which another process's wait is known here at the latest."""


class Shared(Protocol):
    """Of the store, what processes need to tell each other to wait."""

    async def now(self) -> datetime:
        """The store's clock, which all processes share."""

    async def setting(self, key: str) -> Any:
        """A value that processes share, None if never written."""

    async def set_setting(self, key: str, value: Any) -> None:
        """Write a value that processes share."""


class Gate:
    """Closed for a method until Slack wants to hear of it again; a turn that finds it closed snoozes."""

    def __init__(self, workspace: str, shared: Shared | None) -> None:
        self._workspace = workspace
        self._shared = shared
        self._closed_until: dict[str, float] = {}
        self._looked_at: dict[str, float] = {}

    async def passing(self, method: str) -> None:
        """Raises NotNow while it is closed."""
        await self._look(method)
        left = self._closed_until.get(method, 0.0) - time.monotonic()
        if left > 0:
            # Not all at once when it opens.
            raise NotNow(timedelta(seconds=left + random.random() * min(left, 1.0)))

    async def close(self, method: str, seconds: float) -> None:
        self._closed_until[method] = max(
            self._closed_until.get(method, 0.0), time.monotonic() + seconds
        )
        if self._shared is not None:
            until = await self._shared.now() + timedelta(seconds=seconds)
            await self._shared.set_setting(self._key(method), until.isoformat())

    async def _look(self, method: str) -> None:
        now = time.monotonic()
        if self._shared is None or now < self._looked_at.get(method, 0.0) + LOOK_EVERY:
            return
        self._looked_at[method] = now
        until = await self._shared.setting(self._key(method))
        if until is not None:
            left = (datetime.fromisoformat(until) - await self._shared.now()).total_seconds()
            self._closed_until[method] = max(self._closed_until.get(method, 0.0), now + left)

    def _key(self, method: str) -> str:
        return f"slack/{self._workspace}/{method}"
