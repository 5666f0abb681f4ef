"""Activity on PostgreSQL: plain inserts are reported, and readers skip no row that commits late."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.psql import Connection, column, connect, insert, value


@pytest.fixture
def sql(postgres_url: str) -> Iterator[Connection]:
    with connect(postgres_url) as connection:
        connection.execute("select agent.set_setting('activity', 'true')")
        yield connection


@pytest.fixture
def other(postgres_url: str) -> Iterator[Connection]:
    """Another session, in a transaction from its first statement on."""
    with connect(postgres_url, autocommit=False) as connection:
        yield connection


def read_message_ids(sql: Connection, position: int = 0) -> list[str]:
    """The ids of the messages that were received, in order."""
    return column(
        sql,
        """select frame ->> 'messageId'
           from agent.read_activity(%s) as row, json_array_elements(frames::json) as frame
           where frame ->> 'type' = 'message_received'""",
        [position],
    )


def test_a_plain_insert_is_a_message_received(sql: Connection) -> None:
    event_id = insert(sql, "a")
    assert read_message_ids(sql) == [str(event_id)]
    assert value(sql, "select frames -> 0 ->> 'channel' from agent.activity") == "slack"


def test_insert_event_is_a_message_received(sql: Connection) -> None:
    sql.execute(
        """select agent.insert_event
           ('{"type":"app_mention","channel":"C","ts":"1.5","user":"U","text":"hi"}')"""
    )
    assert read_message_ids(sql) == ["slack_C_1.5"]
    frame = value(sql, "select frames -> 0 from agent.activity")
    assert (frame["sender"], frame["message"], frame["channel"]) == ("U", "hi", "slack")


def test_a_replayed_event_is_received_once_more(sql: Connection) -> None:
    event_id = insert(sql)
    sql.execute("select agent.delete_event(%s)", [event_id])
    new = value(sql, "select agent.replay_event(%s)", [event_id])
    assert read_message_ids(sql) == [str(event_id), str(new)]


def test_id_greater_than_last_seen_as_a_cursor_skips_nothing(
    sql: Connection, other: Connection
) -> None:
    """Ids commit out of order; places are given after the commit."""
    early = insert(other)
    late = insert(sql)
    assert read_message_ids(sql) == [str(late)]
    assert value(sql, "select next from agent.activity_span()") == 2
    other.commit()
    assert read_message_ids(sql, 2) == [str(early)]
    assert read_message_ids(sql) == [str(late), str(early)]


def test_a_reader_does_not_wait_for_another_that_gives_places(
    sql: Connection, other: Connection
) -> None:
    insert(sql)
    assert len(read_message_ids(other)) == 1
    insert(sql)
    # Until the other transaction commits, nobody else may give places, and no reader waits.
    assert read_message_ids(sql) == []
    other.commit()
    assert len(read_message_ids(sql)) == 2


def test_looking_for_what_happened_costs_the_same_however_much_there_is(sql: Connection) -> None:
    for _ in range(2):
        sql.execute(
            """insert into agent.activity (frames)
               select '[{"type": "note"}]' from generate_series(1, 5000)"""
        )
        sql.execute("select agent.activity_span()")
    sql.execute("vacuum analyze agent.activity")
    plan = value(
        sql, "explain (analyze, buffers, format json) select * from agent.read_activity(9990)"
    )
    assert plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"] < 200
