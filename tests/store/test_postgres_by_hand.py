"""Plain inserts, updates and deletes in the PostgreSQL tables never strand a lane."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest

from tests.store.psql import Connection, claim, column, connect, drain, headless, insert, value


@pytest.fixture
def sql(postgres_url: str) -> Iterator[Connection]:
    with connect(postgres_url) as connection:
        yield connection


@pytest.fixture
def other(postgres_url: str) -> Iterator[Connection]:
    """Another session, in a transaction from its first statement on."""
    with connect(postgres_url, autocommit=False) as connection:
        yield connection


def test_a_plain_insert_of_the_six_columns_is_claimed(sql: Connection) -> None:
    event_id = value(
        sql,
        """insert into agent.event (id, event_ts, attempts, vt, claimed, event)
           values (77, now(), 0, now() - interval '1s', '{}', '{"text": "by hand"}')
           returning id""",
    )
    assert claim(sql) == [event_id]
    assert value(sql, "select queue from agent.event") == "inbox"


def test_plain_inserts_of_one_lane_are_worked_in_order(sql: Connection) -> None:
    ids = [insert(sql, "a") for _ in range(5)]
    assert drain(sql) == ids


def test_an_insert_cannot_claim_to_be_head(sql: Connection) -> None:
    first, second = insert(sql, "a"), insert(sql, "a", head=True)
    assert column(sql, "select id from agent.event where head") == [first]
    assert drain(sql) == [first, second]


def test_a_head_deleted_by_hand_lets_its_lane_go_on(sql: Connection) -> None:
    first, second, third = (insert(sql, "a") for _ in range(3))
    sql.execute("delete from agent.event where id = %s", [first])
    assert drain(sql) == [second, third]


def test_a_follower_deleted_by_hand_changes_nothing_else(sql: Connection) -> None:
    first, second, third = (insert(sql, "a") for _ in range(3))
    sql.execute("delete from agent.event where id = %s", [second])
    assert drain(sql) == [first, third]


def test_heads_of_many_lanes_deleted_by_hand_let_all_go_on(sql: Connection) -> None:
    lanes = [[insert(sql, f"lane {n}") for _ in range(2)] for n in range(50)]
    sql.execute("delete from agent.event where head")
    assert headless(sql) == []
    assert sorted(drain(sql)) == [second for _first, second in lanes]


@pytest.mark.parametrize(
    "moved", ["lane = 'b'", "queue = 'outbox'", "lane = null", "lane = 'b', queue = 'outbox'"]
)
def test_a_head_moved_by_hand_lets_its_lane_go_on(sql: Connection, moved: str) -> None:
    first, second = insert(sql, "a"), insert(sql, "a")
    sql.execute(f"update agent.event set {moved} where id = %s".encode(), [first])
    assert headless(sql) == []
    assert second in drain(sql)


def test_a_head_moved_into_a_lane_with_a_head_waits_there(sql: Connection) -> None:
    first, second, other_lane = insert(sql, "a"), insert(sql, "a"), insert(sql, "b")
    sql.execute("update agent.event set lane = 'b' where id = %s", [first])
    assert sorted(column(sql, "select id from agent.event where head")) == [second, other_lane]
    assert sorted(drain(sql)) == [first, second, other_lane]


def test_a_follower_moved_to_no_lane_is_ready(sql: Connection) -> None:
    first, second = insert(sql, "a"), insert(sql, "a")
    sql.execute("update agent.event set lane = null where id = %s", [second])
    assert sorted([*claim(sql), *claim(sql)]) == [first, second]


def test_a_head_unset_by_hand_is_set_again(sql: Connection) -> None:
    first, second = insert(sql, "a"), insert(sql, "a")
    sql.execute("update agent.event set head = false where id = %s", [first])
    assert headless(sql) == []
    assert drain(sql) == [first, second]


def test_a_second_head_set_by_hand_is_refused(sql: Connection) -> None:
    _first, second = insert(sql, "a"), insert(sql, "a")
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql.execute("update agent.event set head = true where id = %s", [second])
    assert len(column(sql, "select id from agent.event where head")) == 1


def test_insert_and_claim_in_one_transaction_work(sql: Connection) -> None:
    with sql.transaction():
        first, second = insert(sql, "a"), insert(sql, "a")
        assert claim(sql) == [first]
        sql.execute("select agent.delete_event(%s)", [first])
        assert claim(sql) == [second]
    assert headless(sql) == []


def test_a_visibility_time_set_back_by_hand_makes_a_claimed_event_ready(sql: Connection) -> None:
    event_id = insert(sql, "a")
    assert claim(sql) == [event_id]
    assert claim(sql) == []
    sql.execute("update agent.event set vt = now() where id = %s", [event_id])
    assert claim(sql) == [event_id]
    assert value(sql, "select attempts from agent.event") == 2


def test_a_long_open_insert_does_not_block_its_lane(sql: Connection, other: Connection) -> None:
    late = insert(other, "a")
    first, second = insert(sql, "a"), insert(sql, "a")
    assert drain(sql) == [first, second]
    other.commit()
    assert drain(sql) == [late]


def test_id_greater_than_last_seen_as_a_cursor(sql: Connection, other: Connection) -> None:
    """Ids commit out of order: the smaller one that commits later is worked all the same."""
    smaller = insert(other)
    greater = insert(sql)
    assert drain(sql) == [greater]
    other.commit()
    assert smaller < greater
    assert drain(sql) == [smaller]


def test_an_open_insert_event_does_not_block_its_lane(sql: Connection, other: Connection) -> None:
    call = """select agent.insert_event
              (jsonb_build_object('channel', 'C1', 'thread_ts', '1.0', 'ts', %s::text))"""
    late = value(other, call, ["1.1"])
    first = value(sql, call, ["1.2"])
    assert drain(sql) == [first]
    other.commit()
    assert drain(sql) == [late]


def test_a_locked_head_is_not_slid_past(sql: Connection, other: Connection) -> None:
    first, _second = insert(sql, "a"), insert(sql, "a")
    other.execute("select id from agent.event where id = %s for update", [first])
    assert claim(sql) == []
    other.rollback()
    assert claim(sql) == [first]


def test_two_transactions_with_lanes_in_opposite_order_do_not_deadlock(
    postgres_url: str, sql: Connection
) -> None:
    failures: list[Exception] = []
    together = threading.Barrier(4)

    def put_all(lanes: list[str]) -> None:
        try:
            with connect(postgres_url, autocommit=False) as connection:
                for _ in range(12):
                    connection.execute(
                        "insert into agent.event (lane, event)"
                        " select lane, '{}' from unnest(%s::text[]) as lane",
                        [lanes],
                    )
                    together.wait(timeout=20)
                    connection.commit()
        except (psycopg.Error, threading.BrokenBarrierError) as error:
            failures.append(error)

    lanes = [f"lane {number}" for number in range(200)]
    threads = [threading.Thread(target=put_all, args=[order]) for order in (lanes, lanes[::-1]) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert headless(sql) == []
    assert value(sql, "select count(*) from agent.event where head") == 200


@pytest.mark.parametrize(
    "postgres_engine",
    [
        "postgres",
        # The buckets of locks are those of the first PostgreSQL.
        pytest.param("postgres15", marks=pytest.mark.chaos),
        pytest.param("timescale", marks=pytest.mark.chaos),
    ],
    indirect=True,
)
def test_twenty_thousand_lanes_in_one_transaction_do_not_fill_the_lock_table(
    sql: Connection,
) -> None:
    with sql.transaction():
        sql.execute(
            "insert into agent.event (lane, event)"
            " select n::text, '{}' from generate_series(1, 20000) as n"
        )
        # Run the deferred triggers now, while the locks of the transaction can still be counted.
        sql.execute("set constraints all immediate")
        held = value(
            sql,
            "select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'",
        )
    assert held <= 1024
    assert value(sql, "select count(*) from agent.event where head") == 20_000


def test_repeatable_read_gets_a_serialization_error_instead_of_a_stranded_lane(
    sql: Connection, other: Connection
) -> None:
    first = insert(sql, "a")
    other.execute("set transaction isolation level repeatable read")
    other.execute("select count(*) from agent.event")
    assert drain(sql) == [first]
    # This snapshot still shows a head, for which the new event would wait for ever.
    insert(other, "a")
    with pytest.raises(psycopg.errors.SerializationFailure):
        other.commit()
    other.rollback()
    assert headless(sql) == []
    again = insert(sql, "a")
    assert drain(sql) == [again]


def test_repeatable_read_without_a_conflict_is_fine(sql: Connection, other: Connection) -> None:
    other.execute("set transaction isolation level repeatable read")
    event_id = insert(other, "a")
    other.commit()
    assert drain(sql) == [event_id]


def test_repeatable_read_does_not_make_a_second_head(sql: Connection, other: Connection) -> None:
    other.execute("set transaction isolation level repeatable read")
    other.execute("select count(*) from agent.event")
    first = insert(sql, "a")
    insert(other, "a")
    with pytest.raises(psycopg.errors.SerializationFailure):
        other.commit()
    other.rollback()
    assert drain(sql) == [first]


def test_a_rolled_back_delete_leaves_the_head_where_it_was(
    sql: Connection, other: Connection
) -> None:
    first, second = insert(sql, "a"), insert(sql, "a")
    other.execute("delete from agent.event where id = %s", [first])
    other.rollback()
    assert drain(sql) == [first, second]


def test_a_sweep_after_all_that_mends_nothing(sql: Connection) -> None:
    ids = [insert(sql, f"lane {n % 3}") for n in range(12)]
    sql.execute("delete from agent.event where id = any (%s)", [ids[:4]])
    sql.execute("update agent.event set lane = 'lane 1' where id = %s", [ids[5]])
    assert value(sql, "select mended from agent.sweep('inbox')") == 0
    assert sorted(drain(sql)) == ids[4:]


def test_a_sweep_mends_the_lanes_of_its_own_queue(sql: Connection) -> None:
    first = insert(sql, "a")
    insert(sql, "a")
    second = insert(sql, "a", queue="other")
    without_heads(sql)
    assert value(sql, "select mended from agent.sweep('other')") == 1
    assert column(sql, "select id from agent.event where head") == [second]
    assert value(sql, "select mended from agent.sweep('inbox')") == 1
    assert column(sql, "select id from agent.event where head order by id") == [first, second]


def test_many_lanes_are_mended_by_several_sweeps(sql: Connection) -> None:
    for number in range(5):
        insert(sql, f"lane {number}")
    without_heads(sql)
    mend = "select agent.mend_queue('inbox', 2)"
    assert [value(sql, mend) for _ in range(3)] == [2, 2, 1]
    assert headless(sql) == []
    assert column(sql, "select key from agent.setting where key like 'mend/%%'") == []
    assert value(sql, mend) == 0
    without_heads(sql)
    assert value(sql, mend) == 2  # It goes on with lane 2.
    assert value(sql, "select agent.mend_lanes()") == 3


@pytest.mark.parametrize(
    "erase",
    [
        "select agent.forget_subject('default', 'USER', 'web:id:ann')",
        "select agent.erase_conversation('web:ann', 'web', '{coder/web:ann}')",
    ],
)
def test_no_lane_of_a_forgotten_person_is_left_in_a_setting(
    sql: Connection, erase: LiteralString
) -> None:
    for lane in ("bob", "coder/web:ann"):
        insert(sql, lane)
    sql.execute("select agent.mend_queue('inbox', 1)")
    left = "select value #>> '{}' from agent.setting where key = 'mend/inbox'"
    assert column(sql, left) == ["coder/web:ann"]
    sql.execute(erase)
    assert column(sql, left) == []


def without_heads(sql: Connection) -> None:
    """Take the heads of all lanes, as a bug would."""
    with sql.transaction():
        sql.execute("set local holdfast.lanes = 'held'")
        sql.execute("update agent.event set head = false where lane is not null")
