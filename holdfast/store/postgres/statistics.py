"""Numbers of events by time on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from holdfast.store.postgres.store import PostgresStore
from holdfast.store.statistics import Numbers, Window

COLUMNS = "bucket, target, received, completed, failed, tokens, cost, cells, cell_events"


class PostgresStatistics:
    """See holdfast.store.statistics.Statistics."""

    def __init__(self, store: PostgresStore) -> None:
        self._connections = store.connections

    async def roll_up(self, until: datetime) -> datetime | None:
        [(reached,)] = await self._connections.rows("select agent.roll_up(%s)", (until,))
        return None if reached is None else min(reached, until)

    async def by_bucket(
        self, window: Window, since: datetime, queue: str, targets: Sequence[str] | None
    ) -> Iterable[tuple[datetime, Numbers]]:
        given = None if targets is None else list(targets)
        rows = await self._rows(window, since, queue, given, False)
        return [(bucket, _numbers(numbers)) for bucket, _, *numbers in rows]

    async def by_target(
        self, window: Window, since: datetime, queue: str
    ) -> Iterable[tuple[str, Numbers]]:
        rows = await self._rows(window, since, queue, None, True)
        return [(target, _numbers(numbers)) for _, target, *numbers in rows]

    async def _rows(self, window: Window, since: datetime, *given: Any) -> list[tuple[Any, ...]]:
        return await self._connections.rows(
            f"select {COLUMNS} from agent.statistics(%s, %s, %s, %s::text[], %s)",
            (_seconds(window), since, *given),
        )


def _seconds(window: Window) -> int:
    return int(window.width.total_seconds())


def _numbers(row: Sequence[Any]) -> Numbers:
    received, completed, failed, tokens, cost, cells, events = row
    times = dict(zip(cells or (), events or (), strict=True))
    return Numbers(received or 0, completed or 0, failed or 0, tokens, cost, times)
