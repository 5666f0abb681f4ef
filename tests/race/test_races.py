"""Races of real processes on real connections, checked by their journal and both tables."""

from __future__ import annotations

import time
from itertools import accumulate
from pathlib import Path

import psycopg
import pytest

from holdfast.queue.event import INBOX, OUTBOX, NewEvent
from holdfast.queue.store import SweepPolicy
from holdfast.store import open_store
from holdfast.testing.databases import POSTGRES_ENGINES, SQLITE
from tests.checker import Report, check
from tests.journal import Run, read_journal, read_tables
from tests.race.worker import PART, errors_of, workers

# By engine: processes, events, lanes.
RACES = {
    "postgres": (16, 20_000, 500),
    "postgres15": (4, 2_000, 100),
    "timescale": (4, 2_000, 100),
    SQLITE: (4, 5_000, 250),
}


async def put(url: str, events: int, lanes: int) -> list[int]:
    """Put events into many lanes, and some without a lane. Returns their ids."""
    new = [
        NewEvent(
            event={"number": number}, lane=None if number % 50 == 7 else f"lane {number % lanes}"
        )
        for number in range(events)
    ]
    async with open_store(url) as store:
        stored = [
            id
            for start in range(0, events, 1000)
            for id in await store.put(new[start : start + 1000])
        ]
    return [id for id in stored if id is not None]


async def lanes_without_head(url: str) -> int:
    async with open_store(url) as store:
        return sum(
            [
                (await store.sweep(SweepPolicy(queue=queue))).repaired_lanes
                for queue in (INBOX, OUTBOX)
            ]
        )


def check_drained(
    url: str, journal: Path, stored: list[int], *, leases_may_end: bool = False
) -> Report:
    """Check a drained inbox, and the replies that share lanes in the outbox."""
    runs, faults = read_journal(journal)
    rows = read_tables(url)
    assert faults == []
    assert {row.outcome for row in rows} == {"completed"}
    assert sum(row.parent_id is not None for row in rows) == sum(id % 10 == 0 for id in stored)
    return check(runs, rows, stored, leases_may_end=leases_may_end)


@pytest.mark.parametrize("engine", RACES, indirect=True)
async def test_processes_that_race_lose_nothing_and_keep_every_lane_in_order(
    engine: str, database_url: str, tmp_path: Path
) -> None:
    count, events, lanes = RACES[engine]
    stored = await put(database_url, events, lanes)
    with workers("drain", database_url, tmp_path / "journal", count) as processes:
        assert errors_of(processes) == []
    report = check_drained(database_url, tmp_path / "journal", stored)
    assert report.violations == []
    assert report.reruns == []
    assert len(stored) == events < report.runs
    assert await lanes_without_head(database_url) == 0


async def test_killed_processes_lose_nothing(database_url: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    stored = await put(database_url, 2_000, 50)
    with workers("drain_with_short_leases", database_url, journal, 4) as processes:
        wait_for_lines(journal, 500)
        for process in processes[:2]:
            process.kill()
        assert errors_of(processes[2:]) == []
    report = check_drained(database_url, journal, stored, leases_may_end=True)
    assert report.violations == []
    assert await lanes_without_head(database_url) == 0


def wait_for_lines(journal: Path, lines: int) -> None:
    until = time.monotonic() + 60
    while not journal.exists() or journal.read_text().count("\n") < lines:
        assert time.monotonic() < until, "the workers make no progress"
        time.sleep(0.01)


@pytest.mark.parametrize("engine", POSTGRES_ENGINES, indirect=True)
async def test_shuffled_puts_and_settles_with_emits_see_no_deadlock(
    engine: str, database_url: str, tmp_path: Path
) -> None:
    with workers("shuffle", database_url, tmp_path / "journal", 4) as processes:
        assert errors_of(processes) == []
    # A store retries after a deadlock, so only the server knows of it.
    with psycopg.connect(database_url) as connection:
        [(deadlocks,)] = connection.execute(
            "select deadlocks from pg_stat_database where datname = current_database()"
        ).fetchall()
    assert deadlocks == 0
    assert await lanes_without_head(database_url) == 0


@pytest.mark.parametrize("engine", ["postgres", SQLITE], indirect=True)
async def test_a_limit_is_exact_over_processes_and_both_names_of_the_default_agent(
    engine: str, database_url: str, tmp_path: Path
) -> None:
    async with open_store(database_url) as store:
        await store.set_setting("routing", {"default": "coder"})
        await store.limit(INBOX, "coder", 3)
        new = [
            NewEvent(event={}, target=target) for target in ("coder", "") for _ in range(2 * PART)
        ]
        stored = [id for id in await store.put(new) if id is not None]
    with workers("hold_limited", database_url, tmp_path / "journal", 4) as processes:
        assert errors_of(processes) == []
    runs, _ = read_journal(tmp_path / "journal")
    assert check(runs, read_tables(database_url), stored).violations == []
    assert len({run.process for run in runs}) == 4
    assert most_at_once(runs) == 3


def most_at_once(runs: list[Run]) -> int:
    steps = sorted(
        (at, step) for run in runs for at, step in ((run.started_at, 1), (run.ended_at or 0, -1))
    )
    return max(accumulate(step for _, step in steps))
