"""The SQL contract to the letter: inserting Slack events, Slack time, and the catalogue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.slack import MENTION, event, pass_time, put
from tests.store.psql import Connection, claim, column, drain, insert, value

DAMPED = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FIRST, LAST = datetime(1970, 1, 1), datetime(2199, 12, 31)  # noqa: DTZ001
MOMENTS = st.datetimes(FIRST, LAST, timezones=st.just(UTC))


def test_a_slack_event_is_stored_as_it_is(sql: Connection) -> None:
    row = event(sql, put(sql))
    assert (row["event"], row["queue"], row["attempts"], row["claimed"]) == (
        MENTION,
        "inbox",
        0,
        [],
    )
    assert row["max_attempts"] is None


@pytest.mark.parametrize(
    "given_ts", ["1767225600.000001", 1767225600.000001, "1767225600.123456", 1767225600.123456]
)
def test_the_event_time_is_exact_to_the_microsecond_as_number_and_as_text(
    sql: Connection, given_ts: object
) -> None:
    expected = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(
        microseconds=1 if "000001" in str(given_ts) else 123456
    )
    assert event(sql, put(sql, event_ts=given_ts))["event_ts"] == expected


@given(moment=MOMENTS)
@DAMPED
def test_every_event_time_is_exact(sql: Connection, moment: datetime) -> None:
    micros = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    text = f"{micros // 1_000_000}.{micros % 1_000_000:06}"
    assert event(sql, put(sql, event_ts=text, ts=None))["event_ts"] == moment


@pytest.mark.parametrize(
    "given_ts", [None, "", "soon", "-1", -1, "7258118400", 9e15, "1e300", "NaN", True, [1]]
)
def test_an_event_time_that_is_missing_or_out_of_range_is_now(
    sql: Connection, given_ts: object
) -> None:
    assert event(sql, put(sql, event_ts=given_ts))["event_ts"] - datetime.now(UTC) < timedelta(
        minutes=1
    )
    assert value(sql, "select abs(extract(epoch from event_ts - now())) < 60 from agent.event")


def test_the_message_id_holds_team_channel_and_ts_in_full(sql: Connection) -> None:
    message_id = event(sql, put(sql))["message_id"]
    assert all(part in message_id for part in ("T1", "C1", "1767225600.000200"))


def test_a_message_that_is_live_is_not_inserted_again(sql: Connection) -> None:
    assert put(sql) is not None
    assert put(sql, event_ts="1767225999.000000", text="edited") is None
    assert value(sql, "select count(*) from agent.event") == 1


def test_a_message_of_another_team_channel_or_time_is_another(sql: Connection) -> None:
    ids = [put(sql), put(sql, team="T2"), put(sql, channel="C2"), put(sql, ts="1767225600.000201")]
    assert len(set(ids) - {None}) == 4


def test_a_message_in_history_is_known_for_seven_days(sql: Connection) -> None:
    event_id = put(sql)
    claim(sql)
    sql.execute("select agent.delete_event(%s)", [event_id])
    pass_time(sql, days=6, hours=23)
    sql.execute("select agent.sweep('inbox')")
    assert put(sql) is None
    pass_time(sql, hours=2)
    sql.execute("select agent.sweep('inbox')")
    assert put(sql) is not None


def test_a_conversation_is_channel_and_thread(sql: Connection) -> None:
    root = event(sql, put(sql))["lane"]
    assert event(sql, put(sql, ts="2.0", thread_ts=MENTION["ts"]))["lane"] == root
    assert event(sql, put(sql, ts="3.0"))["lane"] != root
    assert event(sql, put(sql, ts="4.0", channel="C2", thread_ts=MENTION["ts"]))["lane"] != root


@pytest.mark.parametrize("missing", ["channel", "ts"])
def test_a_payload_without_channel_and_ts_has_no_dedup_and_no_lane(
    sql: Connection, missing: str
) -> None:
    first, second = put(sql, **{missing: None}), put(sql, **{missing: None})
    assert None not in (first, second)
    assert [
        (row["lane"], row["message_id"]) for row in (event(sql, first), event(sql, second))
    ] == [(None, None)] * 2


def test_extra_parameters_have_defaults_and_can_be_named(sql: Connection) -> None:
    event_id = value(
        sql,
        """select agent.insert_event('{"a": 1}', _queue => 'other', _agent => 'coder', _lane => 'l'
                                    , _message_id => 'm'
                                    , _vt => now() - interval '1 minute', _max_attempts => 9)""",
    )
    row = event(sql, event_id)
    assert (row["queue"], row["target"], row["lane"], row["message_id"], row["max_attempts"]) == (
        "other",
        "coder",
        "l",
        "m",
        9,
    )


def test_an_insert_event_is_undone_with_its_transaction(sql: Connection, other: Connection) -> None:
    assert put(other) is not None
    other.rollback()
    assert put(sql) is not None


@given(moment=MOMENTS)
@DAMPED
def test_slack_time_and_back_loses_nothing(sql: Connection, moment: datetime) -> None:
    ts = value(sql, "select agent.from_timestamptz(%s)", [moment])
    assert (
        ts
        == Decimal((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
        / 1_000_000
    )
    assert value(sql, "select agent.to_timestamptz(%s::numeric)", [ts]) == moment
    assert value(sql, "select agent.to_timestamptz(%s::text)", [str(ts)]) == moment


def test_slack_time_is_read_as_number_and_as_text(sql: Connection) -> None:
    expected = datetime(2026, 1, 1, 0, 0, 0, 200, tzinfo=UTC)
    assert value(sql, "select agent.to_timestamptz(1767225600.000200)") == expected
    assert value(sql, "select agent.to_timestamptz('1767225600.000200')") == expected


def test_all_functions_are_security_invoker_with_a_pinned_search_path(sql: Connection) -> None:
    functions = list(
        sql.execute(
            """select proname, prosecdef, proconfig from pg_proc
               where pronamespace = 'agent'::regnamespace"""
        )
    )
    assert len(functions) > 20
    assert [found["proname"] for found in functions if found["prosecdef"]] == []
    pinned = [
        any(entry.startswith("search_path=") for entry in found["proconfig"] or [])
        for found in functions
    ]
    assert [found["proname"] for found, ok in zip(functions, pinned, strict=True) if not ok] == []


def test_the_live_table_has_the_classical_columns_with_defaults(sql: Connection) -> None:
    found = {
        row["column_name"]: (
            row["udt_name"],
            row["column_default"] is not None or row["is_identity"] == "YES",
        )
        for row in sql.execute(
            """select column_name, udt_name, column_default, is_identity
               from information_schema.columns
               where table_schema = 'agent' and table_name = 'event'"""
        )
    }
    assert found["id"] == ("int8", True)
    assert found["event_ts"][0] == found["vt"][0] == "timestamptz"
    assert (found["attempts"], found["claimed"], found["event"][0]) == (
        ("int4", True),
        ("_timestamptz", True),
        "jsonb",
    )
    assert found["vt"][1]


def test_history_has_the_columns_of_the_live_table_and_how_it_ended(sql: Connection) -> None:
    names = """select column_name from information_schema.columns
               where table_schema = 'agent' and table_name = %s"""
    live, history = (set(column(sql, names, [table])) for table in ("event", "event_hist"))
    assert history - live == {"outcome", "finished_at"}
    assert live - history == set()


def test_an_outcome_nobody_knows_is_refused(sql: Connection) -> None:
    insert(sql)
    drain(sql)
    with pytest.raises(psycopg.errors.CheckViolation):
        sql.execute("update agent.event_hist set outcome = 'lost'")
