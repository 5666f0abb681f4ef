"""Numbers of events by time on SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

from holdfast.store.payload import dump, parse
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.rows import MICROSECOND, Row, micros, moment
from holdfast.store.sqlite.settings import read_setting, set_setting
from holdfast.store.sqlite.writer import Writing
from holdfast.store.statistics import KEPT, KEPT_FOR, SETTING, STEP, WINDOWS, Numbers, Window

if TYPE_CHECKING:
    from holdfast.store.sqlite.store import SqliteStore

SQL = load()


class SqliteStatistics:
    """See holdfast.store.statistics.Statistics."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def roll_up(self, until: datetime) -> datetime | None:
        """Count in a reader, so that writers do not wait; the writer only adds the sums."""
        last = micros(until)
        mark, since = await self._store.read(partial(_next_span, last=last))
        end = min(last, since + STEP // MICROSECOND)
        if end <= since:
            return until
        counts = await self._store.read(partial(_count, since=since, until=end))
        add = partial(_add, counts=counts, mark=mark, until=end)
        return moment(end) if await self._store.write(add) else None

    async def by_bucket(
        self, window: Window, since: datetime, queue: str, targets: Sequence[str] | None
    ) -> Iterable[tuple[datetime, Numbers]]:
        given = None if targets is None else dump(list(targets))
        rows = await self._rows(window, since, {"queue": queue, "targets": given, "by_target": 0})
        return [(moment(row[0]), _numbers(row)) for row in rows]

    async def by_target(
        self, window: Window, since: datetime, queue: str
    ) -> Iterable[tuple[str, Numbers]]:
        rows = await self._rows(window, since, {"queue": queue, "targets": None, "by_target": 1})
        return [(row[0], _numbers(row)) for row in rows]

    async def _rows(self, window: Window, since: datetime, params: dict[str, Any]) -> list[Row]:
        start = micros(since)

        def read(connection: Connection) -> list[Row]:
            finished_since = max(read_setting(connection, SETTING) or 0, start)
            given = {"since": start, "finished_since": finished_since, "width": _micros_of(window)}
            return connection.execute(SQL["statistics"], params | given).fetchall()

        return await self._store.read(read)


def _micros_of(window: Window) -> int:
    return window.width // MICROSECOND


def _next_span(connection: Connection, last: int) -> tuple[int | None, int]:
    """Return the end of the added-up history, None if there is none, and where to begin."""
    mark = read_setting(connection, SETTING)
    has_history = connection.execute(SQL["has_history"]).fetchone() is not None
    # Without history all spans are empty, so begin with the last one.
    return mark, max(mark or 0, last - (KEPT if has_history else STEP) // MICROSECOND)


def _count(connection: Connection, since: int, until: int) -> list[Row]:
    params = {"since": since, "until": until, "width": _micros_of(WINDOWS["hour"])}
    return connection.execute(SQL["count_finished"], params).fetchall()


def _add(db: Writing, counts: Sequence[Row], mark: int | None, until: int) -> bool:
    """Add counts to the sums. Returns False if another process added some since."""
    if read_setting(db.connection, SETTING) != mark:
        return False
    widths = [_micros_of(window) for window in WINDOWS.values()]
    oldest = until - KEPT // MICROSECOND
    params = {"counts": dump(counts), "widths": dump(widths), "oldest": oldest}
    db.connection.execute(SQL["add_counts"], params)
    for width, kept in KEPT_FOR.items():
        before = {"width": width // MICROSECOND, "before": until - kept // MICROSECOND}
        db.connection.execute(SQL["drop_counts"], before)
    set_setting(db, SETTING, until)
    return True


def _numbers(row: Row) -> Numbers:
    _, received, completed, failed, tokens, cost, cells = row
    return Numbers(received, completed, failed, tokens, cost, dict(parse(cells)))
