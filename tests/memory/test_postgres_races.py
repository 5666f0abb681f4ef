"""Changes of memory that meet in two open transactions of PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.store.psql import Connection, connect, value


@pytest.fixture
def sql(postgres_url: str) -> Iterator[Connection]:
    with connect(postgres_url) as connection:
        yield connection


@pytest.fixture
def first(postgres_url: str) -> Iterator[Connection]:
    """A session in a transaction from its first statement on."""
    with connect(postgres_url, autocommit=False) as connection:
        yield connection


def save(sql: Connection, subject: str) -> None:
    body = {"workspace_id": "acme", "id": "w", "content": "green tea"}
    body |= {"subject_type": "USER", "subject_id": subject}
    sql.execute("select agent.save_observation(%s)", [Jsonb(body)])


def wait_for_a_lock(watcher: Connection, sql: Connection) -> None:
    """Wait until the session waits for a lock of another one."""
    query = "select cardinality(pg_blocking_pids(%s)) > 0"
    while not value(watcher, query, [sql.info.backend_pid]):
        pass


def overtake(postgres_url: str, first: Connection, sql: Connection, work: Any) -> None:
    """Run work on `sql` that has to wait until `first` commits."""
    late = threading.Thread(target=work)
    late.start()
    with connect(postgres_url) as watcher:
        wait_for_a_lock(watcher, sql)
    first.commit()
    late.join()


def test_two_first_saves_at_once_remove_the_loser_from_its_index(
    postgres_url: str, sql: Connection, first: Connection
) -> None:
    save(first, "ann")
    overtake(postgres_url, first, sql, lambda: save(sql, "bob"))
    changes = sql.execute("select subject_key, operation from agent.mem_outbox order by id")
    assert [tuple(change.values()) for change in changes] == [
        ("acme:USER:ann", "UPSERT"),
        ("acme:USER:ann", "DELETE"),
        ("acme:USER:bob", "UPSERT"),
    ]


def test_a_deletion_waits_for_a_late_writer_of_the_document(
    postgres_url: str, sql: Connection, first: Connection
) -> None:
    pieces = [{"content": "green tea", "embedding": "{1,0}"}]
    entry = {"id": "w", "hash": "h", "version": 10, "pieces": pieces}
    first.execute("select agent.put_documents('m', 'ann', 'model', %s)", [Jsonb([entry])])
    overtake(
        postgres_url,
        first,
        sql,
        lambda: sql.execute("select agent.remove_documents('m', 'ann', '{w}', 11)"),
    )
    assert value(sql, "select count(*) from agent.knowledge where not deleted") == 0
