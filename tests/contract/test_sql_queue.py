"""The SQL contract to the letter: claim, delete, sweep, retry and replay, one event at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.contract.slack import MENTION, event, finished, pass_time, put
from tests.store.psql import Connection, claim, column, drain, insert, value


def test_a_claim_counts_the_attempt_hides_the_event_and_notes_the_time(sql: Connection) -> None:
    event_id = put(sql)
    [row] = sql.execute("select *, agent.now() as now from agent.claim_event(3, '5 minutes')")
    assert (row["id"], row["attempts"], len(row["claimed"])) == (event_id, 1, 1)
    assert row["vt"] - row["claimed"][0] == timedelta(minutes=5)
    assert (row["holder"], row["fence"] > 0) == (None, True)
    assert claim(sql) == []


def test_the_default_lease_is_ten_minutes(sql: Connection) -> None:
    put(sql)
    [row] = sql.execute("select vt - claimed[1] as lease from agent.claim_event()")
    assert row["lease"] == timedelta(minutes=10)


def test_a_claim_of_nothing_gives_no_row(sql: Connection) -> None:
    insert(sql, queue="outbox")
    assert claim(sql) == []


def test_a_claim_stops_at_the_maximum_of_attempts(sql: Connection) -> None:
    insert(sql, attempts=3)
    own = insert(sql, attempts=3, max_attempts=5)
    assert [*claim(sql), *claim(sql)] == [own]
    assert len(column(sql, "select id from agent.claim_event(_max_attempts => 4)")) == 1


def test_a_claim_skips_what_another_has_locked(sql: Connection, other: Connection) -> None:
    first, second = insert(sql), insert(sql)
    [taken] = claim(other)
    assert claim(sql) == [({first, second} - {taken}).pop()]
    assert claim(sql) == []


def test_a_claim_goes_past_a_whole_window_that_others_have_locked(
    sql: Connection, other: Connection
) -> None:
    sql.execute("insert into agent.event (event) select '{}' from generate_series(1, 150)")
    other.execute("select id from agent.event order by vt, id limit 120 for update")
    assert len(claim(sql)) == 1


def test_a_claim_chooses_at_random_among_those_that_wait_longest(sql: Connection) -> None:
    sql.execute(
        """insert into agent.event (vt, event)
           select now() - interval '1 day' + n * interval '1 second', '{}'
           from generate_series(1, 2000) as n"""
    )
    waiting = column(sql, "select id from agent.event order by vt, id")
    taken = [claim(sql)[0] for _ in range(30)]
    assert taken != sorted(taken)
    assert max(waiting.index(event_id) for event_id in taken) < 1000


def test_a_deleted_event_is_completed_in_history_and_its_lane_goes_on(sql: Connection) -> None:
    first, second = insert(sql, "a"), insert(sql, "a")
    claim(sql)
    sql.execute("select agent.delete_event(%s)", [first])
    row = finished(sql, first)
    assert (row["outcome"], row["attempts"], row["finished_at"] is None) == ("completed", 1, False)
    assert claim(sql) == [second]


def test_an_unknown_id_is_deleted_in_vain(sql: Connection) -> None:
    sql.execute("select agent.delete_event(12345)")
    assert column(sql, "select id from agent.event_hist") == []


def test_a_delete_with_a_fence_refuses_a_lost_lease(sql: Connection) -> None:
    event_id = insert(sql)
    [old] = sql.execute("select fence from agent.claim_event()")
    sql.execute("update agent.event set vt = now()")
    [new] = sql.execute("select fence from agent.claim_event()")
    sql.execute("select agent.delete_event(%s, %s)", [event_id, old["fence"]])
    assert column(sql, "select id from agent.event") == [event_id]
    sql.execute("select agent.delete_event(%s, %s)", [event_id, new["fence"]])
    assert column(sql, "select id from agent.event") == []


def test_what_is_over_is_swept_into_history_by_cause(sql: Connection) -> None:
    now = value(sql, "select now()")
    over = insert(sql, attempts=3, vt=now)
    old = insert(sql, vt=now - timedelta(hours=2))
    leased = insert(sql, attempts=2, vt=now - timedelta(hours=3))
    waiting = insert(sql, vt=now - timedelta(minutes=59))
    sql.execute(
        "select agent.claim(_queue => 'inbox', _targets => '{\"\"}', _limit => 1, _lease => '1h')"
    )
    [swept] = sql.execute("select * from agent.delete_expired_events()")
    assert swept == {"dead": 1, "expired": 1}
    assert (finished(sql, over)["outcome"], finished(sql, old)["outcome"]) == ("dead", "expired")
    assert sorted(column(sql, "select id from agent.event")) == [leased, waiting]


def test_a_sweep_takes_its_limits_and_its_queue(sql: Connection) -> None:
    insert(sql, attempts=1, vt=value(sql, "select now() - interval '2 minutes'"))
    insert(sql, queue="outbox", attempts=1)
    [swept] = sql.execute(
        "select * from agent.delete_expired_events(_max_attempts => 2, _max_vt_age => '1 minute')"
    )
    assert swept == {"dead": 0, "expired": 1}
    [swept] = sql.execute(
        "select * from agent.delete_expired_events(_max_attempts => 1, _queue => 'outbox')"
    )
    assert swept == {"dead": 1, "expired": 0}


def test_waiting_behind_another_does_not_expire(sql: Connection) -> None:
    _first, second = insert(sql, "a"), insert(sql, "a")
    pass_time(sql, hours=2)
    [swept] = sql.execute("select * from agent.delete_expired_events()")
    assert swept == {"dead": 0, "expired": 1}
    assert event(sql, second)["vt"] == value(sql, "select agent.now()")


def test_a_retried_dead_letter_has_its_id_and_full_attempts(sql: Connection) -> None:
    event_id = put(sql)
    sql.execute("update agent.event set attempts = 3")
    sql.execute("select agent.delete_expired_events()")
    assert value(sql, "select agent.retry_event(%s)", [event_id]) == event_id
    row = event(sql, event_id)
    assert (row["attempts"], row["event"], row["head"]) == (0, MENTION, True)
    assert column(sql, "select id from agent.event_hist") == []
    assert claim(sql) == [event_id]


def test_only_a_dead_letter_can_be_retried(sql: Connection) -> None:
    completed = insert(sql)
    drain(sql)
    assert value(sql, "select agent.retry_event(%s)", [completed]) is None
    assert value(sql, "select agent.retry_event(12345)") is None


def test_a_replay_is_a_new_event(sql: Connection) -> None:
    event_id = put(sql)
    drain(sql)
    again = value(sql, "select agent.replay_event(%s)", [event_id])
    assert again not in (None, event_id)
    assert event(sql, again)["event"] == MENTION
    assert finished(sql, event_id)["outcome"] == "completed"
    assert claim(sql) == [again]


def test_the_six_columns_can_be_inserted_from_history(sql: Connection) -> None:
    event_id = put(sql)
    drain(sql)
    sql.execute(
        """insert into agent.event (id, event_ts, attempts, vt, claimed, event)
           select id, event_ts, 0, now(), claimed, event from agent.event_hist where id = %s""",
        [event_id],
    )
    assert claim(sql) == [event_id]


def test_the_sweep_spares_any_row_whose_vt_lies_ahead_whoever_wrote_it(sql: Connection) -> None:
    ahead = insert(sql, attempts=3, vt=datetime.now(UTC) + timedelta(hours=1))
    over = insert(sql, attempts=3)
    assert value(sql, "select dead from agent.delete_expired_events()") == 1
    assert value(sql, "select dead from agent.delete_expired_events(_max_attempts => 0)") == 0
    assert column(sql, "select id from agent.event") == [ahead]
    assert column(sql, "select id from agent.event_hist") == [over]


def test_a_retried_event_keeps_the_record_of_its_earlier_claims(sql: Connection) -> None:
    event_id = put(sql)
    claimed = value(sql, "select claimed from agent.claim_event()")
    sql.execute("select agent.cancel_event(%s)", [event_id])
    assert value(sql, "select agent.retry_event(%s)", [event_id]) == event_id
    assert sql.execute("select attempts, claimed from agent.event").fetchone() == {
        "attempts": 0,
        "claimed": claimed,
    }


def test_insert_event_stores_the_attempts_that_its_agent_has_of_its_own(sql: Connection) -> None:
    routing = '{"default": "coder", "lanes": {}, "attempts": {"coder": 7, "writer": 2}}'
    sql.execute("select agent.set_setting('routing', %s)", [routing])
    for agent in (None, "", "coder", "writer", "reader"):
        sql.execute("select agent.insert_event('{}', _agent => %s)", [agent])
    sql.execute("""select agent.insert_event('{}', _agent => 'writer', _max_attempts => 4)""")
    sql.execute("""select agent.insert_event('{}', _queue => 'outbox', _agent => 'writer')""")
    stored = column(sql, "select max_attempts from agent.event order by id")
    assert stored == [7, 7, 7, 2, None, 4, None]
