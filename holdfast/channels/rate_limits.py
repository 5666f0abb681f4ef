"""Rate limits of a platform: the waits that it asks for, shared by all processes."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta

from holdfast.channels.base import NotNow
from holdfast.channels.budget import SettingsStore

READ_INTERVAL = 1.0
"""Seconds after which a wait that another process stored is known here."""


class RateLimits:
    """Waits of one account, by method, for all processes. Responses that must wait are snoozed."""

    def __init__(self, channel: str, account: str, store: SettingsStore | None) -> None:
        self._account = f"{channel}/{account}"
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
        return f"{self._account}/{method}"
