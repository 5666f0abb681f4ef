"""Slack's rate limits: a Retry-After of a method holds for all workers of all processes."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta
from typing import Any, Protocol

from holdfast.channels.base import NotNow

READ_INTERVAL = 1.0
"""Seconds after which a wait that another process stored is known here."""


class SettingsStore(Protocol):
    """The part of a store by which processes share waits."""

    async def now(self) -> datetime:
        """Return the time of the store's clock."""

    async def setting(self, key: str) -> Any:
        """Return a stored value, None if there is none."""

    async def set_setting(self, key: str, value: Any) -> None:
        """Store a value for all processes."""


class RateLimits:
    """Waits of one workspace, by method. A turn that has to wait snoozes."""

    def __init__(self, workspace: str, store: SettingsStore | None) -> None:
        self._workspace = workspace
        self._store = store
        self._wait_until: dict[str, float] = {}
        self._read_at: dict[str, float] = {}

    async def check(self, method: str) -> None:
        """Raise NotNow while the method must not be called."""
        await self._read(method)
        left = self._wait_until.get(method, 0.0) - time.monotonic()
        if left > 0:
            # Add jitter, so that not all turns come back at once.
            raise NotNow(timedelta(seconds=left + random.random() * min(left, 1.0)))

    async def wait(self, method: str, seconds: float) -> None:
        """Let no process call the method for some seconds."""
        self._wait_until[method] = max(
            self._wait_until.get(method, 0.0), time.monotonic() + seconds
        )
        if self._store is not None:
            until = await self._store.now() + timedelta(seconds=seconds)
            await self._store.set_setting(self._key(method), until.isoformat())

    async def _read(self, method: str) -> None:
        """Read the waits that other processes stored, at most once per interval."""
        now = time.monotonic()
        if self._store is None or now < self._read_at.get(method, 0.0) + READ_INTERVAL:
            return
        self._read_at[method] = now
        until = await self._store.setting(self._key(method))
        if until is not None:
            left = (datetime.fromisoformat(until) - await self._store.now()).total_seconds()
            self._wait_until[method] = max(self._wait_until.get(method, 0.0), now + left)

    def _key(self, method: str) -> str:
        return f"slack/{self._workspace}/{method}"
