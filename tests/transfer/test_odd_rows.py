"""Rows that somebody wrote by hand come along, as near as the target can hold them."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from holdfast.queue.store import Filter
from holdfast.settings import sqlite_path
from holdfast.store import open_store
from holdfast.store.sqlite.rows import FIRST, LAST
from holdfast.store.transfer.move import move
from holdfast.store.transfer.tables import BY_NAME
from holdfast.testing.databases import Databases
from tests.transfer.conftest import NewDatabase
from tests.transfer.filling import contents, insert, opened, row_of

ODD_PAYLOADS = [
    '{"text":"a\\u0000b"}',
    '{"text":"half \\ud83d pair","whole":"\\ud83c\\udf89","backslash":"\\\\u0000"}',
    "no JSON at all \0 with NUL",
    "[1,2,3]",
    '"a text"',
    "null",
    "1e400000",
    '{"n":' + "9" * 5000 + "}",
    '{"n":1e300,"m":1.50,"z":-0.0,"big":123456789012345678901234567890}',
    "[" * 5000 + "]" * 5000,
    '{"twice":1,"twice":2}',
    "NaN",
    json.dumps({"huge": "é🎉" * 400_000}, ensure_ascii=False),
    "",
]


def add_history(url: str, payloads: list[str], **values: Any) -> None:
    table = BY_NAME["event_hist"]
    rows = []
    for number, payload in enumerate(payloads, 1):
        row = dict(zip(table.names, row_of(table, number), strict=True))
        rows.append(tuple((row | {"event": payload, **values}).values()))
    with opened(url) as connection:
        insert(connection, table, rows)


@pytest.mark.parametrize("engine", ["postgres", "timescale"])
async def test_payloads_that_are_no_json_come_along(
    engine: str, databases: Databases, new_database: NewDatabase
) -> None:
    target, back = new_database(engine), new_database("sqlite")
    with databases.fresh("sqlite") as url:
        add_history(url, ODD_PAYLOADS)
        # Newer Pythons parse what is nested deeper.
        assert move(url, target).replaced in (7, 8)
        move(target, back)
        before, after = contents(url)["event_hist"], contents(back)["event_hist"]
    assert [row["id"] for row in after] == [row["id"] for row in before]
    found = {row["id"] - 1000: row["event"] for row in after}
    assert found[1] == {"text": "a\ufffdb"}
    assert found[2] == {"text": "half \ufffd pair", "whole": "🎉", "backslash": "\\u0000"}
    assert json.loads(found[3]) == "no JSON at all \ufffd with NUL"
    assert found[4] == [1, 2, 3]
    assert json.loads(found[8]) == ODD_PAYLOADS[7]
    assert found[9]["big"] == 123456789012345678901234567890
    assert found[11] == {"twice": 2}
    assert found[13] == json.loads(ODD_PAYLOADS[12])
    async with open_store(target) as store:
        assert len(await store.finished(Filter(), limit=100)) == len(ODD_PAYLOADS)


def test_numbers_and_moments_out_of_range_are_bounded(
    databases: Databases, new_database: NewDatabase
) -> None:
    target, back = new_database("timescale"), new_database("sqlite")
    with databases.fresh("sqlite") as url:
        add_history(url, ["{}", "{}"], event_ts=-(2**62), finished_at=2**62, claimed='[1,"x",null]')
        with opened(url) as connection:
            connection.execute("insert into event (event, claimed) values ('{}', '[]')")
            connection.execute(
                "update event set hops = 99999999999, attempts = -4, fence = -9, max_attempts = 0,"
                " vt = 9223372036854775807, claimed = '{}', message_id = 'nul' || char(0)"
            )
        move(url, target)
    move(target, back)
    [live], past = contents(back)["event"], contents(back)["event_hist"]
    assert (live["hops"], live["attempts"], live["fence"]) == (1_000_000, 0, 0)
    assert (live["max_attempts"], live["vt"], live["claimed"]) == (1, LAST - 1, [])
    assert live["message_id"] == "nul\ufffd"
    assert {(row["event_ts"], row["finished_at"]) for row in past} == {(FIRST, LAST - 1)}
    assert [row["claimed"] for row in past] == [[1], [1]]


def test_texts_that_are_not_utf_8_come_along(
    databases: Databases, new_database: NewDatabase
) -> None:
    target = new_database("postgres")
    with databases.fresh("sqlite") as url:
        with opened(url) as connection:
            for number in range(3):
                connection.execute(
                    "insert into chat_message (team_id, from_agent, message, created_at)"
                    " values ('dev', 'ann', cast(x'68c3ff' as text), ?)",
                    (number,),
                )
        move(url, target)
    with psycopg.connect(target) as connection:
        rows = connection.execute("select message from agent.chat_message").fetchall()
    assert rows == [("h\ufffd\ufffd",)] * 3


@pytest.mark.parametrize("engine", ["sqlite", "timescale"])
def test_rows_of_postgresql_with_infinite_times_and_equal_ids_come_along(
    engine: str, databases: Databases, new_database: NewDatabase
) -> None:
    source, target = new_database("postgres"), new_database(engine)
    with databases.fresh("sqlite") as url:
        add_history(url, ["{}"])
        move(url, source)
    with psycopg.connect(source) as connection:
        connection.execute("set local holdfast.move = 'on'")
        connection.execute(
            "update agent.event_hist set vt = '-infinity', finished_at = 'infinity',"
            " claimed = array[null, 'infinity'::timestamptz]"
        )
        if engine != "sqlite":
            connection.execute("insert into agent.event_hist select * from agent.event_hist")
    report = move(source, target)
    assert {one.name: one.rows for one in report.tables}["event_hist"] == (
        1 if engine == "sqlite" else 2
    )


def test_an_id_that_is_twice_in_history_is_named(
    databases: Databases, new_database: NewDatabase
) -> None:
    source, target = new_database("postgres"), new_database("sqlite")
    with databases.fresh("sqlite") as url:
        add_history(url, ["{}"])
        move(url, source)
    with psycopg.connect(source) as connection:
        connection.execute("insert into agent.event_hist select * from agent.event_hist")
    with pytest.raises(Exception, match=r"event_hist 1001: .*UNIQUE.*nothing was changed"):
        move(source, target)
    path = sqlite_path(target)
    assert path is not None
    assert not path.exists()
