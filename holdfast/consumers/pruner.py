"""Old rows and files that no queue owns: deleted once an hour, since finding them reads a lot."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from holdfast.queue.store import Store
from holdfast.routing.router import MOST_CHOICES, PLATFORMS
from holdfast.settings import Settings
from holdfast.store import files
from holdfast.store.schedules import Schedules
from holdfast.store.uploads import Files, remove_uploads, stray_uploads
from holdfast.telemetry import SWEPT

PRUNE_EVERY = timedelta(hours=1)
KEEP_UNSENT = timedelta(days=1)
"""Time for which an upload is kept that no message carries."""
KEEP_ENDED = timedelta(days=7)
"""Time for which a schedule stays listed after its last run."""


class Pruner:
    """Deletes old audit lines, files, choices of agents and schedules."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._next_at = 0.0

    async def sweep(self) -> None:
        """Delete what is old, unless an hour has not passed since the last time."""
        settings, now = self._settings, time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + PRUNE_EVERY.total_seconds()
        if settings.keep_audit is not None:
            await self._store.prune_audit(settings.keep_audit)
        if settings.keep_files is not None:
            pruned = await asyncio.to_thread(files.sweep, settings.files, settings.keep_files)
            SWEPT.add("files", "pruned", by=pruned)
        SWEPT.add("uploads", "pruned", by=await self._prune_uploads())
        pruned = await self._store.prune_choices(settings.keep_choices, MOST_CHOICES, PLATFORMS)
        SWEPT.add("choices", "pruned", by=pruned)
        pruned = await Schedules(self._store).prune(await self._store.now() - KEEP_ENDED)
        SWEPT.add("schedules", "pruned", by=pruned)

    async def _prune_uploads(self) -> int:
        """Delete uploads that nobody sent, old ones, and parts of broken ones. Returns how many."""
        now, root, keep = await self._store.now(), self._settings.files, self._settings.keep_files
        stored = Files(self._store)
        before = None if keep is None else now - keep
        removed = remove_uploads(root, await stored.prune(now - KEEP_UNSENT, before))
        old = time.time() - KEEP_UNSENT.total_seconds()
        found = await asyncio.to_thread(stray_uploads, root, old)
        stray = set(found) - await stored.known_ids(found)
        return removed + await asyncio.to_thread(remove_uploads, root, stray)
