"""The pages that a call reads do not grow with the backlog, whatever statistics made its plan."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.queue.event import NewEvent
from holdfast.store.postgres.rows import new_event
from holdfast.store.sqlite.connection import connect, load

Connection = psycopg.Connection[tuple[Any, ...]]
Reads = dict[str, int]

SMALL, LARGE = 1_000, 100_000
LANES = {"one lane": "'lane'", "many lanes": "'lane ' || number / 4", "no lanes": "null::text"}
UNSEEN = "unseen"
"""Statistics gathered before the backlog was committed: they say that a full table is empty."""
STATISTICS = ["empty", "one lane", "many lanes", UNSEEN]
# Statistics only matter to the planner, so one engine is tested with all of them.
CASES = [("postgres", statistics) for statistics in STATISTICS] + [
    ("postgres15", UNSEEN),
    ("timescale", UNSEEN),
    pytest.param("postgres15", "empty", marks=pytest.mark.chaos),
    pytest.param("timescale", "empty", marks=pytest.mark.chaos),
]

FILL = """
with number as
( select number, {lane} as lane, agent.now() - (%(count)s - number) * interval '1 ms' as vt
  from generate_series(1, %(count)s) as number
)
, key as
( insert into agent.message_key (queue, message_id, event_id, seen_at)
  select 'inbox', 'message ' || number, number, vt from number
)
insert into agent.event (id, vt, event, target, lane, head, message_id, root_id)
select number, vt, '{{"text": "hello"}}', case number %% 8 when 7 then 'other' else '' end, lane
     , lane is null or row_number() over (partition by lane order by number) = 1
     , 'message ' || number, number
from number
order by number
"""


def fill(connection: Connection, shape: str, count: int) -> None:
    """A backlog of that shape and nothing else, with its heads as the store would have set them."""
    with connection.transaction():
        connection.execute("set local holdfast.lanes = 'held'")
        connection.execute(FILL.format(lane=LANES[shape]).encode(), {"count": count})
        connection.execute("select setval('agent.event_id_seq', %s)", (count,))


def clear(connection: Connection) -> None:
    connection.execute("truncate agent.event, agent.event_hist, agent.message_key")


def gather_statistics(connection: Connection, shape: str) -> None:
    """Statistics from a table of that shape, empty again afterwards; nothing refreshes them."""
    for table in ("event", "message_key"):
        connection.execute(f"alter table agent.{table} set (autovacuum_enabled = false)".encode())
    if shape in LANES:
        fill(connection, shape, SMALL)
    connection.execute("analyze agent.event, agent.event_hist, agent.message_key")
    clear(connection)


def reads(connection: Connection, call: str, arguments: Any = ()) -> int:
    """How many buffers the call touches, those of the statements inside its functions too."""
    rows = connection.execute(
        f"explain (analyze, buffers, format json) {call}".encode(), arguments
    ).fetchall()
    plan = rows[0][0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def claim(connection: Connection, collect: int = 1) -> list[dict[str, Any]]:
    """Turns, as settle and renew take them."""
    turns = connection.execute(
        "select fence, array_agg(id order by id)"
        " from agent.claim('inbox', '{\"\",other}', 10, '1 min', 'me', %s)"
        " group by fence",
        (collect,),
    )
    return [{"ids": ids, "fence": fence} for fence, ids in turns]


def new_events(name: str) -> str:
    lanes = [*(f"new {number}" for number in range(5)), "lane", "lane 1", None]
    return json.dumps(
        [new_event(NewEvent(event={}, lane=lane, message_id=f"{name} {lane}")) for lane in lanes]
    )


def mention() -> str:
    return json.dumps({"channel": "C1", "ts": "1700000000.000100", "text": "hello"})


def claiming(connection: Connection, collect: int) -> int:
    call = "select id from agent.claim('inbox', '{\"\",other,nobody}', 10, '1 min', 'me', %s)"
    return reads(connection, call, [collect])


def settling(connection: Connection, collect: int = 1, **end: Any) -> int:
    turns = [turn | end for turn in claim(connection, collect)]
    return reads(connection, "select ended from agent.settle(%s)", [json.dumps(turns)])


def reserving(connection: Connection, name: str) -> int:
    lanes = [f"{name} {number}" for number in range(120)]
    call = "select ids from agent.reserve(%s::text[], %s::text[], %s::text[])"
    return reads(
        connection, call, [["inbox"] * len(lanes), lanes, [f"new {lane}" for lane in lanes]]
    )


# Arguments of a caller that found the table empty: plans are made for that, too.
NOTHING: dict[str, Any] = {"ids": [], "fence": 0}
CALLS: dict[str, Callable[[Connection], int]] = {
    "claim": lambda connection: claiming(connection, 1),
    "claim, collecting": lambda connection: claiming(connection, 10),
    "claim_event": lambda connection: reads(connection, "select id from agent.claim_event()"),
    "settle, done": lambda connection: settling(
        connection, outcome="done", emits=[{"event": {}, "queue": "outbox", "lane": "lane"}]
    ),
    "settle, collected": lambda connection: settling(connection, 10, outcome="done"),
    "settle, retry": lambda connection: settling(
        connection, outcome="retry", error="broken", delay="1 s"
    ),
    "settle, dead": lambda connection: settling(connection, outcome="dead", error="broken"),
    "put": lambda connection: reads(
        connection, "select agent.put(%s, null, true)", [new_events("new")]
    ),
    "put, known": lambda connection: reads(
        connection,
        "select agent.put(%s, null, true)",
        [json.dumps([{"event": {}, "message_id": "message 7"}])],
    ),
    "put one": lambda connection: reads(
        connection, "select agent.put_one('{}', _lane => 'lane', _message_id => 'new')"
    ),
    "reserve": lambda connection: reads(
        connection,
        "select ids from agent.reserve('{inbox,inbox}', '{lane,new}', '{message 7,new}')",
    ),
    "reserve, many new": lambda connection: reserving(connection, "new"),
    "reserve, many among others": lambda connection: reserving(connection, "lane"),
    "put in a transaction": lambda connection: reads(
        connection, "select agent.put(%s), agent.keep_heads_now()", [new_events("later")]
    ),
    "insert_event": lambda connection: reads(
        connection, "select agent.insert_event(%s), agent.keep_heads_now()", [mention()]
    ),
    "renew": lambda connection: reads(
        connection, "select agent.renew(%s, '1 min')", [json.dumps(claim(connection, 10))]
    ),
    "checkpoint": lambda connection: reads(
        connection,
        "select agent.checkpoint(%(ids)s, %(fence)s, '{}')",
        next(iter(claim(connection, 10)), NOTHING),
    ),
    "delete_event": lambda connection: reads(
        connection, "select agent.delete_event(1), agent.keep_heads_now()"
    ),
    "mend_queue": lambda connection: reads(connection, "select agent.mend_queue('inbox', 100)"),
    "next_due": lambda connection: reads(
        connection, "select agent.next_due('inbox', '{\"\",other,nobody}')"
    ),
}


def measure(connection: Connection) -> Reads:
    """Count the pages that each call reads; roll its changes back."""
    pages = {}
    for name, call in CALLS.items():
        # Twice: the first reads the catalogue too.
        for _ in range(2):
            with connection.transaction(force_rollback=True):
                pages[name] = call(connection)
    return pages


def measure_at(url: str, shape: str, count: int, statistics: str) -> dict[str, Reads]:
    """Count pages read at a backlog, by plans made for it and by plans made without one."""
    with (
        psycopg.connect(url, autocommit=True) as other,
        psycopg.connect(url, autocommit=True) as old,
    ):
        clear(other)
        measure(old)
        with other.transaction():
            fill(other, shape, count)
            if statistics == UNSEEN:
                old.execute("analyze agent.event, agent.message_key")
        with psycopg.connect(url, autocommit=True) as fresh:
            return {"fresh": measure(fresh), "old": measure(old)}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("shape", LANES)
@pytest.mark.parametrize(("postgres_engine", "statistics"), CASES, indirect=["postgres_engine"])
def test_a_call_reads_at_most_twice_as_much_at_a_hundred_times_the_backlog(
    postgres_url: str, statistics: str, shape: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        gather_statistics(connection, statistics)
    small = measure_at(postgres_url, shape, SMALL, statistics)
    large = measure_at(postgres_url, shape, LARGE, statistics)
    too_much = {
        f"{name} by {plans} plans": (reads_small, large[plans][name])
        for plans, pages in small.items()
        for name, reads_small in pages.items()
        if large[plans][name] > 2 * reads_small
    }
    assert too_much == {}


MOST_SECONDS = 10
"""Time that 40,000 events in one transaction may take."""
CPU_TIMES = re.compile(r"\[([0-9.]+) s user, ([0-9.]+) s system total\]")
INSERT = """select count(agent.insert_event(jsonb_build_object
    ('team', 'T1', 'channel', 'C' || number, 'ts', '1700000000.' || number, 'text', 'hello')))
from generate_series(1, %s) as number"""


def reads_of_one_transaction(url: str, statistics: str, count: int) -> tuple[Reads, float]:
    """Store new conversations in one transaction.

    Returns the buffers read per conversation, when stored and at commit, and the seconds of CPU
    time that the server took: the wall clock depends on what else the machine does."""
    with (
        psycopg.connect(url, autocommit=True) as connection,
        psycopg.connect(url, autocommit=True) as other,
    ):
        clear(other)
        other.execute("analyze agent.event, agent.message_key")
        used = cpu_seconds(connection)
        with connection.transaction():
            stored = reads(connection, INSERT, [count])
            if statistics == UNSEEN:
                other.execute("analyze agent.event, agent.message_key")
            at_commit = reads(connection, "select agent.keep_heads_now()")
        heads = connection.execute("select count(*) from agent.event where head").fetchone()
        assert heads == (count,)
    return {"stored": stored // count, "at commit": at_commit // count}, used[-1] - used[0]


def cpu_seconds(connection: Connection) -> list[float]:
    """Return a list that grows at each statement by the CPU time that the session has used."""
    used: list[float] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        for user, system in CPU_TIMES.findall(notice.message_detail or ""):
            used.append(float(user) + float(system))

    connection.add_notice_handler(note)
    connection.execute("set client_min_messages = log")
    connection.execute("set log_statement_stats = on")
    connection.execute("select")
    return used


@pytest.mark.parametrize(
    ("postgres_engine", "statistics", "count"),
    [
        ("postgres", "empty", 10_000),
        ("postgres", UNSEEN, 40_000),
        ("postgres15", UNSEEN, 10_000),
        ("timescale", UNSEEN, 10_000),
        pytest.param("postgres", "empty", 40_000, marks=pytest.mark.chaos),
        *(
            pytest.param(engine, statistics, 40_000, marks=pytest.mark.chaos)
            for engine in ("postgres15", "timescale")
            for statistics in ("empty", UNSEEN)
        ),
    ],
    indirect=["postgres_engine"],
)
def test_many_events_in_one_sql_transaction_cost_the_same_each(
    postgres_url: str, statistics: str, count: int
) -> None:
    few, _ = reads_of_one_transaction(postgres_url, statistics, 1_000)
    many, seconds = reads_of_one_transaction(postgres_url, statistics, count)
    assert all(many[when] <= 2 * few[when] for when in few), (few, many)
    assert many["at commit"] < 50
    assert seconds <= MOST_SECONDS


WAITING = """
insert into agent.event (vt, event)
select now() - n * interval '1 min', '{}' from generate_series(1, %s) as n
"""


@pytest.mark.parametrize("known", [0, 1, 2, 20])
def test_turns_are_numbered_longest_waiting_first_whatever_the_statistics(
    postgres_url: str, known: int
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("alter table agent.event set (autovacuum_enabled = false)")
        connection.execute(WAITING, [known])
        connection.execute("analyze agent.event")
        connection.execute("delete from agent.event")
        connection.execute(WAITING, [8])
        ids = connection.execute(
            "select id from agent.claim('inbox', '{\"\"}', 8, '1 min') order by fence"
        ).fetchall()
    assert ids == sorted(ids, reverse=True)


BY_ID = [
    "fresh_heads",
    "claim_heads",
    "claim_followers",
    "events",
    "leases",
    "renew",
    "checkpoint",
    "fence_of",
    "buried",
]
BY_ID += ["complete", "finish", "delete_followers", "delete_ended", "back", "ids_after"]
# The queries of a claim, a settle, a put and a look ahead on SQLite, and how each finds its events.
HOT = {
    "ready": "INDEX event_ready (queue=? AND target=? AND vt<?)",
    "behind": "INDEX event_lane (queue=? AND lane=? AND <expr>>?)",
    "running": "INDEX event_leased (queue=? AND target=? AND vt>?)",
    "next_due": "INDEX event_ready (queue=? AND target=? AND vt>?)",
    "turn_mates": "INDEX event_leased (queue=? AND target=?)",
    "restore_head": "INDEX event_lane (queue=? AND lane=?)",
    **dict.fromkeys(BY_ID, "INTEGER PRIMARY KEY (rowid"),
    "put_events": "PRIMARY KEY (queue=? AND message_id=?)",
    "known_keys": "PRIMARY KEY (queue=? AND message_id=?)",
}
Step = tuple[int, str]


def plan_of(connection: sqlite3.Connection, query: str) -> list[Step]:
    """The steps of SQLite's plan, each with the step it belongs to."""
    parameters = dict.fromkeys(re.findall(r":(\w+)", query), "[]")
    return [
        (parent, step)
        for _, parent, _, step in connection.execute(f"explain query plan {query}", parameters)
    ]


def reads_events(step: str) -> bool:
    return re.match(r"(SEARCH|SCAN) (event|event_hist|message_key|[a-z]) ", step + " ") is not None


@pytest.mark.parametrize("name", HOT)
def test_a_hot_query_of_sqlite_finds_its_events_by_index(database: Path, name: str) -> None:
    with closing(connect(database)) as connection:
        plan = plan_of(connection, load()[name])
    assert any(HOT[name] in step for _, step in plan), plan
    assert [
        step
        for _, step in plan
        if step.startswith("SCAN") and reads_events(step) and "VIRTUAL" not in step
    ] == []
    # A result cut short by a limit may be sorted; the table may not.
    sorted_here = {parent for parent, step in plan if "TEMP B-TREE" in step}
    assert [step for parent, step in plan if parent in sorted_here and reads_events(step)] == []
