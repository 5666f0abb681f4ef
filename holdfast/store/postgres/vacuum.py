"""Vacuums of the live table. Autovacuum comes at most once a minute, which is late for a queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import LiteralString

from holdfast.errors import HoldfastError
from holdfast.store.postgres.connections import Connections
from holdfast.telemetry import VACUUM_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

CHECK_EVERY = timedelta(seconds=5)
USELESS_FOR = timedelta(minutes=1)
"""Pause after a vacuum that left most dead rows: a snapshot still needs them."""
DEAD_ROWS = "select agent.dead_rows()"
VACUUM: LiteralString = "vacuum (truncate off, skip_locked) agent.event"
"""Without truncation it takes no lock that a claim would wait for."""


class LiveTableVacuum:
    """Vacuums the live table once enough of its rows are dead, in one process of a fleet."""

    def __init__(self, connections: Connections, is_due_here: Callable[[], bool]) -> None:
        self._connections = connections
        self._is_due_here = is_due_here

    async def run(self) -> None:
        is_failing, pause = False, CHECK_EVERY
        while True:
            await asyncio.sleep(pause.total_seconds())
            try:
                is_useful = not self._is_due_here() or await self.vacuum_if_due()
                is_failing, pause = False, CHECK_EVERY if is_useful else USELESS_FOR
            except HoldfastError as error:
                if not is_failing:
                    log.warning(Entry(VACUUM_FAILED, error=error))
                is_failing = True

    async def vacuum_if_due(self) -> bool:
        """Vacuum if many rows are dead. Returns False if that freed less than half of them."""
        before = await self._dead_rows()
        if not before:
            return True
        await self._connections.execute_alone(VACUUM)
        return await self._dead_rows() * 2 < before

    async def _dead_rows(self) -> int:
        return int(await self._connections.value(DEAD_ROWS))
