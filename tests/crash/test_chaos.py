"""The long fault runs of `make chaos`: hundreds of deaths, and a table of what was done and found."""

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
from tests.crash.crew import Crew, judge, until
from tests.crash.test_crashes import step
from tests.crash.test_postgres_faults import END_ALL_OTHERS
from tests.crash.worker import POINTS
from tests.private_server import Server

pytestmark = pytest.mark.chaos

ROUNDS = 5
KILLS = 24
AT_ONCE = 3
BACKLOG = 150
NAPS = 8
CUTS = 15
RESTARTS = 3


class Tally:
    """What was done and found, by engine."""

    def __init__(self) -> None:
        self.done: Counter[tuple[str, str]] = Counter()
        self.leased = 0

    async def take(self, crew: Crew, *, leases_may_end: bool = False, **faults: int) -> None:
        """Judge a run and add it up."""
        report = await judge(crew, leases_may_end=leases_may_end)
        engine = "postgres" if crew.is_postgres else "sqlite"
        for kill in crew.kills():
            self.done[engine, f"killed {kill['point']}"] += 1
            self.leased += kill["leased"]
        found = {
            "messages": len(crew.stored),
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


async def feed(crew: Crew, store: Store) -> None:
    if (
        sum(count.ready + count.queued for count in await store.counts() if count.queue == "inbox")
        < BACKLOG
    ):
        await crew.put(store, BACKLOG)


@pytest.mark.parametrize("round_number", range(ROUNDS))
async def test_processes_are_killed_at_random_and_at_every_point(
    crew: Crew, store: Store, tally: Tally, round_number: int
) -> None:
    crew.hire(slowness=0.05)
    mines = random.sample(POINTS, len(POINTS))
    armed: set[int] = set()
    while len(crew.kills()) < KILLS:
        await feed(crew, store)
        victims = [worker for worker in crew.workers[1:] if crew.lives(worker)]
        while len(victims) < AT_ONCE:
            point = mines.pop() if mines else None
            victims.append(crew.hire(slowness=0.05, point=point, nth=random.randint(1, 4)))
            armed |= {victims[-1]} if point else set()
        await asyncio.sleep(random.random() * 0.4)
        if unarmed := [worker for worker in victims if worker not in armed]:
            crew.kill(busy(crew, random.choice(unarmed)))
    await crew.wait_drained(store)
    crew.dismiss()
    await tally.take(crew)


def busy(crew: Crew, worker: int) -> int:
    """Three times in four one that has come to hold something, else whatever it is doing, its birth included."""
    give_up_at = time.monotonic() + 3
    while random.random() < 0.995 and time.monotonic() < give_up_at and not crew.leased_by(worker):
        time.sleep(0.002)
    return worker


async def test_processes_stand_still_past_their_leases(
    crew: Crew, store: Store, tally: Tally
) -> None:
    workers = [crew.hire(lease=1.5, slowness=0.1) for _ in range(3)]
    crew.wait_ready(*workers)
    taken_over = 0
    for number in range(NAPS):
        await feed(crew, store)
        taken_over += nap(crew, workers[number % len(workers)])
    await crew.wait_drained(store)
    crew.dismiss()
    await tally.take(
        crew, leases_may_end=True, stopped_past_the_lease=NAPS, whose_turns_others_took=taken_over
    )
    assert taken_over


def nap(crew: Crew, sleeper: int) -> bool:
    """Whether others took its turns; not where it stopped inside a commit to SQLite, which holds up all writers."""
    until(lambda: crew.leased_by(sleeper))
    os.kill(sleeper, signal.SIGSTOP)
    held = set(crew.leased_by(sleeper))
    give_up_at = time.monotonic() + 4
    while (kept := held & set(crew.leased_by(sleeper))) and time.monotonic() < give_up_at:
        time.sleep(0.02)
    os.kill(sleeper, signal.SIGCONT)
    return bool(held) and not kept


async def test_the_clock_jumps_under_deaf_processes(crew: Crew, store: Store, tally: Tally) -> None:
    step(crew, 0)
    workers = [crew.hire(lease=5, slowness=0.1, poll=0.1, deaf=True) for _ in range(3)]
    crew.wait_ready(*workers)
    at = 0.0
    for _ in range(NAPS):
        await feed(crew, store)
        at += random.choice((3600, 60, 5, -0.5, -1))
        step(crew, at)
        seen = len(crew.runs())
        until(lambda: len(crew.runs()) > seen + 20)  # noqa: B023 - called at once
    await crew.wait_drained(store)
    crew.dismiss()
    await tally.take(
        crew, leases_may_end=True, clock_steps=NAPS, processes_that_hear_nothing=len(workers)
    )


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_sessions_are_ended_again_and_again(crew: Crew, store: Store, tally: Tally) -> None:
    crew.wait_ready(*[crew.hire(slowness=0.1) for _ in range(3)])
    for _ in range(CUTS):
        async with open_store(crew.url) as fresh:
            await feed(crew, fresh)
        await asyncio.sleep(random.random() * 0.5)
        crew.write(END_ALL_OTHERS)
    async with open_store(crew.url) as fresh:
        await crew.wait_drained(fresh)
    crew.dismiss()
    await tally.take(crew, all_sessions_ended=CUTS)


async def test_the_server_stops_again_and_again(
    private_crew: Crew, server: Server, tally: Tally
) -> None:
    crew = private_crew
    crew.wait_ready(*[crew.hire(slowness=0.1) for _ in range(3)])
    for how in ("fast", "immediate") * RESTARTS:
        async with open_store(server.url) as store:
            await feed(crew, store)
            seen = len(crew.runs())
            await asyncio.to_thread(until, lambda: len(crew.runs()) > seen + 20)  # noqa: B023
        await asyncio.to_thread(server.stop, how)
        await asyncio.sleep(random.random() * 2)
        assert all(map(crew.lives, crew.workers))
        await asyncio.to_thread(server.start)
    async with open_store(server.url) as store:
        await crew.wait_drained(store)
    crew.dismiss()
    await tally.take(crew, server_stopped_fast=RESTARTS, server_stopped_at_once=RESTARTS)


def test_enough_was_done(tally: Tally) -> None:
    assert tally.kills >= 200
    assert tally.leased * 2 >= tally.kills
    for point in POINTS:
        assert (
            tally.done["sqlite", f"killed {point}"] + tally.done["postgres", f"killed {point}"] >= 5
        )
