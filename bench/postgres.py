"""PostgreSQL as a measured engine: a server of its own with fsync on, and its raw rates."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from bench.engine import Goals, rate
from bench.mention import PAYLOAD
from bench.row import Goal
from bench.workload import CHANNELS, ONE_LANE, TARGET, Shape
from holdfast.testing.databases import Databases

CONNECTIONS = 8
COPY_GOAL = 25_000 / 70_000

RAW_TABLES = """
create table raw_put (id int8 generated always as identity primary key, event jsonb not null);
create table raw_queue (
    id int8 generated always as identity primary key, event jsonb not null, claimed_at timestamptz);
create table raw_history (id int8 not null, event jsonb not null, claimed_at timestamptz);
"""
RAW_PUT = "insert into raw_put (event) values (%s)"
RAW_COPY = "copy raw_put (event) from stdin"
RAW_LOAD = "insert into raw_queue (event) select %s::jsonb from generate_series(1, %s)"
RAW_CLAIM = """
update raw_queue set claimed_at = now()
where id in (
  select id from raw_queue where claimed_at is null order by id limit %s for update skip locked
)
returning id, event
"""
RAW_SETTLE = """
with gone as (delete from raw_queue where id = any (%s) returning id, event, claimed_at)
insert into raw_history (id, event, claimed_at) select id, event, claimed_at from gone
"""

TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = %s"

# Loads heads as triggers would set them, without the triggers, and visible at once.
LOAD = """
with given as materialized
( select number
       , 'C' || lpad((number %% %(channels)s)::text, 4, '0') || ':' || (1700000000 + number)
         as conversation
       , agent.now() - interval '1 hour' + number * interval '1 microsecond' as vt
  from generate_series(1, %(count)s) as number
)
, event as
( insert into agent.event (id, event_ts, vt, event, queue, target, lane, head, message_id, root_id)
  overriding system value
  select number, vt, vt, %(event)s::jsonb, 'inbox', %(target)s
       , case %(shape)s when 'a lane each' then 'coder/' || conversation
         when 'one lane' then %(one_lane)s end
       , %(shape)s <> 'one lane' or number = 1, 'slack_' || conversation, number
  from given
  order by number
)
insert into agent.message_key (queue, message_id, event_id, seen_at)
select 'inbox', 'slack_' || conversation, number, vt from given
"""


class PostgresEngine:
    """A durable server of the project's own."""

    name = "postgres"
    goals = Goals(
        put_one=Goal(0.4, 0.8),
        put_eight=Goal(0.5, 0.6),
        put_bulk=Goal(COPY_GOAL),
        drain_batch=Goal(0.4, 0.6),
        worker_drain=Goal(0.3, 0.5),
        pick_up_half=Goal(4.0, 2.0, at_most=True),
        pick_up_99=Goal(50.0, 8.0, at_most=True),
    )

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    @contextmanager
    def fresh(self) -> Iterator[str]:
        with self._databases.fresh("postgres") as url:
            with psycopg.connect(url, autocommit=True) as connection:
                # By default nobody is declared dead for a while after the start of a server.
                name = sql.Identifier(connection.info.dbname)
                connection.execute(
                    sql.SQL("alter database {} set holdfast.restart_grace = '0s'").format(name)
                )
            yield url

    def load(self, url: str, shape: Shape, count: int, channels: int = CHANNELS) -> None:
        values = {
            "count": count,
            "shape": shape.value,
            "one_lane": ONE_LANE,
            "target": TARGET,
            "channels": channels,
        }
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("set holdfast.lanes = 'held'")
            connection.execute(LOAD, values | {"event": json.dumps(PAYLOAD)})
            connection.execute("select setval('agent.event_id_seq', %s)", [count])
            connection.execute("vacuum analyze agent.event, agent.message_key")

    def raw(self, url: str) -> PostgresRaw:
        return PostgresRaw(url)

    def transactions(self, url: str) -> int:
        # From another database, so that this query does not count.
        with psycopg.connect(self._databases.server("postgres")) as connection:
            [count] = connection.execute(
                TRANSACTIONS, [urlsplit(url).path.removeprefix("/")]
            ).fetchone() or (0,)
        return int(count)

    def version(self) -> str:
        with psycopg.connect(self._databases.server("postgres")) as connection:
            [version] = connection.execute("show server_version").fetchone() or ("?",)
        return f"PostgreSQL {version}"


class PostgresRaw:
    """The raw baselines in hand-written SQL."""

    def __init__(self, url: str) -> None:
        self._connections = [psycopg.connect(url, autocommit=True) for _ in range(CONNECTIONS)]
        self._one = self._connections[0]
        self._one.execute(RAW_TABLES)
        self._event = json.dumps(PAYLOAD)

    def write_back(self) -> None:
        pass

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def put_one(self, count: int) -> float:
        return rate(count, lambda: self._insert(self._one, count))

    def put_eight(self, count: int) -> float:
        share = count // CONNECTIONS
        threads = [
            threading.Thread(target=self._insert, args=(one, share)) for one in self._connections
        ]
        return rate(share * CONNECTIONS, lambda: _run(threads))

    def put_bulk(self, count: int) -> float:
        return rate(count, lambda: self._copy(count))

    def drain(self, events: int, batch: int) -> float:
        self._one.execute(RAW_LOAD, [self._event, events])
        self._one.execute("vacuum analyze raw_queue")
        return rate(events, lambda: self._move(events, batch))

    def _insert(self, connection: psycopg.Connection[Any], count: int) -> None:
        for _ in range(count):
            connection.execute(RAW_PUT, [self._event])

    def _copy(self, count: int) -> None:
        with self._one.cursor() as cursor, cursor.copy(RAW_COPY) as copy:
            for _ in range(count):
                copy.write_row([self._event])

    def _move(self, events: int, batch: int) -> None:
        for _ in range(events // batch):
            claimed = self._one.execute(RAW_CLAIM, [batch]).fetchall()
            self._one.execute(RAW_SETTLE, [[id_ for id_, _ in claimed]])


def _run(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
