"""Numbers of events by time, for charts: received, completed, failed, and the time to answer.

Finished events are added up by the sweep of any process. A chart reads these sums, the events that
finished since, and the live ones, all in one query."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Literal, Protocol

from holdfast.queue.store import Store
from holdfast.store.engine import is_sqlite, postgres_engine, sqlite_engine

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CELLS = 8
"""Histogram cells per doubling of the time to answer: a percentile is accurate to about 5 %."""
LATE_COMMITS = timedelta(seconds=30)
"""Age from which finished events are added up: younger ones may not have been committed yet."""
KEPT = timedelta(days=8)
"""Age up to which history is added up."""
STEP = timedelta(hours=1)
"""Longest span of history that one transaction adds up."""
SETTING = "statistics"
"""Name of the setting that holds the end of the added-up history."""

WindowName = Literal["hour", "day", "week"]


@dataclass(frozen=True, slots=True)
class Window:
    """The time that a chart shows, in buckets of one width. Stored sums have the same widths."""

    width: timedelta
    buckets: int

    def start(self, now: datetime) -> datetime:
        """Return the start of the first bucket; the last one contains `now`."""
        return bucket_of(now, self.width) - self.width * (self.buckets - 1)


WINDOWS: Mapping[WindowName, Window] = {
    "hour": Window(timedelta(minutes=1), 60),
    "day": Window(timedelta(minutes=15), 96),
    "week": Window(timedelta(hours=2), 84),
}
KEPT_FOR: Mapping[timedelta, timedelta] = {
    WINDOWS["hour"].width: timedelta(hours=2),
    WINDOWS["day"].width: timedelta(days=2),
    WINDOWS["week"].width: KEPT,
}
"""How long sums of each width are kept."""


def bucket_of(moment: datetime, width: timedelta) -> datetime:
    return EPOCH + (moment - EPOCH) // width * width


def cell_of(microseconds: int) -> int:
    """Return the histogram cell of a time to answer, as agent.count_finished does in SQL."""
    return math.floor(CELLS * math.log2(max(microseconds / 1000, 1)))


def milliseconds_of(cell: int) -> int:
    """Return the time to answer in the middle of a cell."""
    return round(2 ** ((cell + 0.5) / CELLS))


@dataclass(slots=True)
class Numbers:
    """Sums of counts."""

    received: int = 0
    completed: int = 0
    failed: int = 0
    tokens: int = 0
    cost: float = 0.0
    cells: dict[int, int] = field(default_factory=dict)
    """Completed events by cell."""

    def add(self, other: Numbers) -> None:
        self.received += other.received
        self.completed += other.completed
        self.failed += other.failed
        self.tokens += other.tokens
        self.cost += other.cost
        for cell, events in other.cells.items():
            self.cells[cell] = self.cells.get(cell, 0) + events

    def percentile(self, share: float) -> int | None:
        """Return the milliseconds within which a share of the completed events was answered."""
        cells = sorted(self.cells)
        totals = accumulate(self.cells[cell] for cell in cells)
        wanted = share * self.completed
        return next(
            (milliseconds_of(cell) for cell, total in zip(cells, totals, strict=True)
             if total >= wanted),
            None,
        )  # fmt: skip

    @property
    def success(self) -> float | None:
        """The share of completed events among those that ended."""
        ended = self.completed + self.failed
        return self.completed / ended if ended else None


class Statistics(Protocol):
    """The counts of a store."""

    async def roll_up(self, until: datetime) -> datetime | None:
        """Add the next span of history to the sums, at most up to `until`.

        Returns the end of what is added, None if another process is doing it."""

    async def by_bucket(
        self, window: Window, since: datetime, queue: str, targets: Sequence[str] | None
    ) -> Iterable[tuple[datetime, Numbers]]:
        """Return the numbers of a queue since the start of a bucket, by bucket."""

    async def by_target(
        self, window: Window, since: datetime, queue: str
    ) -> Iterable[tuple[str, Numbers]]:
        """Return the numbers of a queue since the start of a bucket, by target."""


def open_statistics(store: Store) -> Statistics:
    """Return the counts in a store's database."""
    if is_sqlite(store):
        from holdfast.store.sqlite.statistics import SqliteStatistics

        return SqliteStatistics(sqlite_engine(store))
    from holdfast.store.postgres.statistics import PostgresStatistics

    return PostgresStatistics(postgres_engine(store))


async def roll_up(store: Store) -> None:
    """Add all history that is old enough to the sums. The sweep of each process calls this."""
    statistics, until = open_statistics(store), await store.now() - LATE_COMMITS
    while True:
        reached = await statistics.roll_up(until)
        if reached is None or reached >= until:
            return


async def read_series(
    store: Store, window: Window, queue: str, targets: Sequence[str] | None = None
) -> dict[datetime, Numbers]:
    """Return the numbers of each bucket of a window, oldest first, in one query."""
    start = window.start(await store.now())
    series = {start + number * window.width: Numbers() for number in range(window.buckets)}
    for at, numbers in await open_statistics(store).by_bucket(window, start, queue, targets):
        # The store's clock may have passed into the next bucket meanwhile.
        if at in series:
            series[at] = numbers
    return series


async def read_by_target(store: Store, window: Window, queue: str) -> dict[str, Numbers]:
    """Return the numbers of a window by target, in one query."""
    start = window.start(await store.now())
    return dict(await open_statistics(store).by_target(window, start, queue))


def add_up(series: Iterable[Numbers]) -> Numbers:
    """Return the sum of several numbers."""
    total = Numbers()
    for one in series:
        total.add(one)
    return total
