"""SQLite as a measured engine: a file on disk with full sync, and its raw rates."""

from __future__ import annotations

import json
import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path

from bench.engine import Goals, rate
from bench.mention import PAYLOAD
from bench.row import Goal
from bench.workload import CHANNELS, ONE_LANE, TARGET, Shape
from holdfast.settings import sqlite_path
from holdfast.testing.databases import Databases

RAW_TABLES = """
create table raw_put (id integer primary key autoincrement, event text not null);
create table raw_queue (
    id integer primary key autoincrement, event text not null, claimed_at integer);
create table raw_history (id integer not null, event text not null, claimed_at integer);
"""
RAW_PUT = "insert into raw_put (event) values (?)"
RAW_LOAD = """
with recursive series (number) as
    (select 1 union all select number + 1 from series where number < ?)
insert into raw_queue (event) select ? from series
"""
RAW_CLAIM = """
update raw_queue set claimed_at = unixepoch()
where id in (select id from raw_queue where claimed_at is null order by id limit ?)
returning id, event
"""
RAW_KEEP = """
insert into raw_history (id, event, claimed_at)
select id, event, claimed_at from raw_queue where id in (select value from json_each(?))
"""
RAW_DELETE = "delete from raw_queue where id in (select value from json_each(?))"

NAMED = """
create temp table named as
with recursive given (number) as
    (select 1 union all select number + 1 from given where number < :count)
select
  number,
  printf('C%04d:%d', number % :channels, 1700000000 + number) as conversation,
  (cast(strftime('%s', 'now') as integer) - 3600) * 1000000 + number as vt
from given
"""
# Loads heads as triggers would set them, and visible at once.
LOAD_EVENTS = """
insert into event (id, event_ts, vt, event, queue, target, lane, head, message_id, root_id
    , created_at, updated_at)
select
  number, vt, vt, :event, 'inbox', :target,
  case :shape when 'a lane each' then 'coder/' || conversation when 'one lane' then :one_lane end,
  :shape <> 'one lane' or number = 1, 'slack_' || conversation, number, vt, vt
from named
"""
LOAD_KEYS = """
insert into message_key (queue, message_id, event_id, seen_at)
select 'inbox', 'slack_' || conversation, number, vt from named order by conversation
"""


class SqliteEngine:
    """Databases in files on a disk, not in memory."""

    name = "sqlite"
    goals = Goals(
        put_one=Goal(0.5, 0.8),
        put_eight_over_one=Goal(3.0),
        drain_batch=Goal(0.3, 0.6),
        worker_rate=Goal(12_000, 20_000),
        pick_up_99=Goal(80.0, at_most=True),
    )

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    def fresh(self) -> AbstractContextManager[str]:
        return self._databases.fresh("sqlite")

    def load(self, url: str, shape: Shape, count: int, channels: int = CHANNELS) -> None:
        values = {
            "count": count,
            "shape": shape.value,
            "one_lane": ONE_LANE,
            "target": TARGET,
            "channels": channels,
        }
        values["event"] = json.dumps(PAYLOAD)
        with closing(sqlite3.connect(_path(url), isolation_level=None)) as connection:
            connection.execute("pragma synchronous = off")
            connection.execute("begin")
            for statement in (NAMED, LOAD_EVENTS, LOAD_KEYS):
                connection.execute(statement, values)
            connection.execute("commit")
            connection.execute("pragma wal_checkpoint(truncate)")

    def raw(self, url: str) -> SqliteRaw:
        return SqliteRaw(_path(url))

    def transactions(self, url: str) -> None:
        return None

    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"


class SqliteRaw:
    """The raw baselines in hand-written SQL: WAL, and every commit is synced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._one = sqlite3.connect(path.with_name("raw.db"), isolation_level=None)
        self._one.execute("pragma journal_mode = wal")
        self._one.execute("pragma synchronous = full")
        self._one.executescript(RAW_TABLES)
        self._event = json.dumps(PAYLOAD)

    def close(self) -> None:
        self._one.close()

    def put_one(self, count: int) -> float:
        return rate(count, lambda: self._insert(count))

    def put_eight(self, count: int) -> float:
        """Insert from one connection: SQLite has one writer, so eight would only wait."""
        return self.put_one(count)

    def put_bulk(self, count: int) -> float:
        return rate(count, lambda: self._insert_together(count))

    def drain(self, events: int, batch: int) -> float:
        self._one.execute(RAW_LOAD, [events, self._event])
        self.write_back()
        return rate(events, lambda: self._move(events, batch))

    def write_back(self) -> None:
        with closing(sqlite3.connect(self._path)) as ours:
            for connection in (self._one, ours):
                connection.execute("pragma wal_checkpoint(restart)")

    def _insert(self, count: int) -> None:
        for _ in range(count):
            self._one.execute(RAW_PUT, [self._event])

    def _insert_together(self, count: int) -> None:
        self._one.execute("begin immediate")
        self._one.executemany(RAW_PUT, [[self._event]] * count)
        self._one.execute("commit")

    def _move(self, events: int, batch: int) -> None:
        for _ in range(events // batch):
            claimed = self._one.execute(RAW_CLAIM, [batch]).fetchall()
            ids = json.dumps([id_ for id_, _ in claimed])
            self._one.execute("begin immediate")
            self._one.execute(RAW_KEEP, [ids])
            self._one.execute(RAW_DELETE, [ids])
            self._one.execute("commit")


def _path(url: str) -> Path:
    path = sqlite_path(url)
    assert path is not None
    return Path(path)
