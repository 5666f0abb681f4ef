"""The long fault runs of `make chaos`: hundreds of kills, and a table of faults and results."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast.queue.store import Store
from holdfast.store import open_store
from tests.crash.pool import WorkerPool, check_history, wait_until
from tests.crash.test_crashes import set_clock
from tests.crash.test_postgres_faults import END_ALL_OTHERS
from tests.crash.worker import POINTS
from tests.private_server import Server

pytestmark = pytest.mark.chaos

ROUNDS = 5
KILLS = 24
AT_ONCE = 3
BACKLOG = 150
PAUSES = 8
CUTS = 15
RESTARTS = 3


class Tally:
    """Counts of faults and results, by engine."""

    def __init__(self) -> None:
        self.done: Counter[tuple[str, str]] = Counter()
        self.leased = 0

    async def add(self, pool: WorkerPool, *, leases_may_end: bool = False, **faults: int) -> None:
        """Check the history of a run and add its counts."""
        report = await check_history(pool, leases_may_end=leases_may_end)
        engine = "postgres" if pool.is_postgres else "sqlite"
        for kill in pool.kills():
            self.done[engine, f"killed {kill['point']}"] += 1
            self.leased += kill["leased"]
        found = {
            "messages": len(pool.stored),
            "runs": report.runs,
            "runs again": len(report.reruns),
            "violations": 0,
        }
        self.done.update(
            {(engine, name.replace("_", " ")): times for name, times in (faults | found).items()}
        )

    @property
    def kills(self) -> int:
        return sum(times for (_, what), times in self.done.items() if what.startswith("killed"))

    def table(self) -> str:
        engines = ("sqlite", "postgres")
        lines = [
            f"{what:28}" + "".join(f"{self.done[engine, what]:>10}" for engine in engines)
            for what in sorted({what for _, what in self.done})
        ]
        head = " " * 28 + "".join(f"{engine:>10}" for engine in engines)
        return "\n".join(
            [head, *lines, f"{self.kills} kills, {self.leased} of them with a leased turn"]
        )


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    tally = Tally()
    yield tally
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n\n{tally.table()}")


async def refill(pool: WorkerPool, store: Store) -> None:
    if (
        sum(count.ready + count.queued for count in await store.counts() if count.queue == "inbox")
        < BACKLOG
    ):
        await pool.put(store, BACKLOG)


@pytest.mark.parametrize("round_number", range(ROUNDS))
async def test_processes_are_killed_at_random_and_at_every_point(
    pool: WorkerPool, store: Store, tally: Tally, round_number: int
) -> None:
    pool.start(slowness=0.05)
    points = random.sample(POINTS, len(POINTS))
    armed: set[int] = set()
    while len(pool.kills()) < KILLS:
        await refill(pool, store)
        victims = [worker for worker in pool.workers[1:] if pool.is_alive(worker)]
        while len(victims) < AT_ONCE:
            point = points.pop() if points else None
            victims.append(pool.start(slowness=0.05, point=point, nth=random.randint(1, 4)))
            armed |= {victims[-1]} if point else set()
        await asyncio.sleep(random.random() * 0.4)
        if unarmed := [worker for worker in victims if worker not in armed]:
            pool.kill(busy(pool, random.choice(unarmed)))
    await pool.wait_drained(store)
    pool.stop()
    await tally.add(pool)


def busy(pool: WorkerPool, worker: int) -> int:
    """Wait, three times in four, until a worker holds a lease. Returns the worker."""
    give_up_at = time.monotonic() + 3
    while random.random() < 0.995 and time.monotonic() < give_up_at and not pool.leased_by(worker):
        time.sleep(0.002)
    return worker


async def test_processes_are_suspended_past_their_leases(
    pool: WorkerPool, store: Store, tally: Tally
) -> None:
    workers = [pool.start(lease=1.5, slowness=0.1) for _ in range(3)]
    pool.wait_ready(*workers)
    taken_over = 0
    for number in range(PAUSES):
        await refill(pool, store)
        taken_over += pause(pool, workers[number % len(workers)])
    await pool.wait_drained(store)
    pool.stop()
    await tally.add(
        pool, leases_may_end=True, suspended_past_the_lease=PAUSES, turns_taken_over=taken_over
    )
    assert taken_over


def pause(pool: WorkerPool, sleeper: int) -> bool:
    """Suspend a worker past its lease. Returns whether others took over its turns.

    They cannot if it stopped inside a commit to SQLite, which blocks all writers."""
    wait_until(lambda: pool.leased_by(sleeper))
    os.kill(sleeper, signal.SIGSTOP)
    held = set(pool.leased_by(sleeper))
    give_up_at = time.monotonic() + 4
    while (kept := held & set(pool.leased_by(sleeper))) and time.monotonic() < give_up_at:
        time.sleep(0.02)
    os.kill(sleeper, signal.SIGCONT)
    return bool(held) and not kept


async def test_the_clock_steps_under_processes_without_wake_ups(
    pool: WorkerPool, store: Store, tally: Tally
) -> None:
    set_clock(pool, 0)
    workers = [pool.start(lease=5, slowness=0.1, poll=0.1, ignores_wakeups=True) for _ in range(3)]
    pool.wait_ready(*workers)
    at = 0.0
    for _ in range(PAUSES):
        await refill(pool, store)
        at += random.choice((3600, 60, 5, -0.5, -1))
        set_clock(pool, at)
        seen = len(pool.runs())
        wait_until(lambda: len(pool.runs()) > seen + 20)  # noqa: B023 - called at once
    await pool.wait_drained(store)
    pool.stop()
    await tally.add(
        pool, leases_may_end=True, clock_steps=PAUSES, processes_without_wake_ups=len(workers)
    )


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_sessions_are_ended_again_and_again(
    pool: WorkerPool, store: Store, tally: Tally
) -> None:
    pool.wait_ready(*[pool.start(slowness=0.1) for _ in range(3)])
    for _ in range(CUTS):
        async with open_store(pool.url) as fresh:
            await refill(pool, fresh)
        await asyncio.sleep(random.random() * 0.5)
        pool.write(END_ALL_OTHERS)
    async with open_store(pool.url) as fresh:
        await pool.wait_drained(fresh)
    pool.stop()
    await tally.add(pool, all_sessions_ended=CUTS)


async def test_the_server_stops_again_and_again(
    private_pool: WorkerPool, server: Server, tally: Tally
) -> None:
    pool = private_pool
    pool.wait_ready(*[pool.start(slowness=0.1) for _ in range(3)])
    for how in ("fast", "immediate") * RESTARTS:
        async with open_store(server.url) as store:
            await refill(pool, store)
            seen = len(pool.runs())
            await asyncio.to_thread(wait_until, lambda: len(pool.runs()) > seen + 20)  # noqa: B023
        await asyncio.to_thread(server.stop, how)
        await asyncio.sleep(random.random() * 2)
        assert all(map(pool.is_alive, pool.workers))
        await asyncio.to_thread(server.start)
    async with open_store(server.url) as store:
        await pool.wait_drained(store)
    pool.stop()
    await tally.add(pool, server_stopped_fast=RESTARTS, server_stopped_at_once=RESTARTS)


def test_the_run_had_enough_faults(tally: Tally) -> None:
    assert tally.kills >= 200
    assert tally.leased * 2 >= tally.kills
    for point in POINTS:
        assert (
            tally.done["sqlite", f"killed {point}"] + tally.done["postgres", f"killed {point}"] >= 5
        )
