"""Measure a fleet: a thousand workers with their sessions on one PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from bench.engine import Engine
from bench.latency import percentile
from bench.process import MEGABYTE, ROOT
from bench.row import Goal, Row, compare_to_goal
from bench.scale import Scale
from holdfast.migrations.runner import migrate
from holdfast.queue.event import NewEvent
from holdfast.store import Store, open_store
from holdfast.testing import servers

FEW = 10
"""Workers of the fleet that the large one is compared with."""
PER_PROCESS = 100
SESSIONS_PER_WORKER = 2
SETTLING_SECONDS = 3.0
TIMEOUT_SECONDS = 300.0
PING_SECONDS = 1.0
"""Interval between messages to an idle fleet, all of which wakes up for each."""
HOLD_SECONDS = 21
"""Longer than two intervals between renewals."""
LOOKS = Goal(2.0, at_most=True)
NOTICED = Goal(4.0, at_most=True)
RECLAIM = Goal(5.0, at_most=True)

CLAIMS = """
select calls, total_time from pg_stat_user_functions
where schemaname = 'agent' and funcname = 'claim_turns'
"""
CALLS = """
select funcname, calls from pg_stat_user_functions where schemaname = 'agent'
union all
select 'transactions', xact_commit from pg_stat_database where datname = current_database()
"""
DIED_AT = """
select extract(epoch from max(at))::float8 from agent.attempt where error like 'process % died'
"""


@dataclass
class Figures:
    """Measurements of a fleet of one size."""

    workers: int
    start_seconds: float = 0.0
    per_second: dict[str, float] = field(default_factory=dict)
    """Calls per second of an idle fleet, by name of the function."""
    pick_up: list[float] = field(default_factory=list)
    claims_per_message: float = 0.0
    claim: list[float] = field(default_factory=list)
    """Milliseconds of each claim while all workers were busy."""
    claim_in_server: float = 0.0
    """Mean milliseconds of these claims inside of the server."""
    renewals: float = 0.0
    megabytes: float = 0.0
    noticed_seconds: float = 0.0
    """From the death of workers until the last of them was declared dead."""
    reclaim_seconds: float = 0.0


async def fleet(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    if engine.name != "postgres":
        return
    few, many = await _measure(FEW, scale), await _measure(scale.fleet, scale)
    for what, unit, figure in (
        ("until all have registered", "s", lambda one: one.start_seconds),
        ("idle, transactions", "1/s", lambda one: one.per_second["transactions"]),
        ("idle, pick-up p50", "ms", lambda one: percentile(one.pick_up, 0.5)),
        ("idle, longest pick-up", "ms", lambda one: max(one.pick_up)),
        ("idle, claims per message", "", lambda one: one.claims_per_message),
        ("all busy, claim p50", "ms", lambda one: percentile(one.claim, 0.5)),
        ("all busy, claim p99", "ms", lambda one: percentile(one.claim, 0.99)),
        ("all busy, claim in the server", "ms", lambda one: one.claim_in_server),
        ("all busy, renewals", "1/s", lambda one: one.renewals),
        ("private memory of the server", "MB", lambda one: one.megabytes),
    ):
        yield Row(
            store=engine.name,
            what=f"{many.workers:,} workers, {what}",
            measured=figure(many),
            against=f"{few.workers} workers",
            beside=figure(few),
            unit=unit,
        )
    name = f"{many.workers:,} workers"
    looks = many.per_second["look"]
    yield compare_to_goal(LOOKS, engine.name, f"{name}, looks for the dead", looks, "1/s")
    killed = f"{name}, kill -9 of {PER_PROCESS} with looker and deputy"
    noticed = many.noticed_seconds
    yield compare_to_goal(NOTICED, engine.name, f"{killed}, all declared dead", noticed, "s")
    yield compare_to_goal(
        RECLAIM,
        engine.name,
        f"{killed}, last turn again",
        many.reclaim_seconds,
        "s",
    )


async def _measure(workers: int, scale: Scale) -> Figures:
    settings = {
        "max_connections": str(workers * SESSIONS_PER_WORKER + 50),
        "track_functions": "pl",
        "holdfast.restart_grace": "0",
    }
    with (
        servers.postgres(servers.wheel_binaries(), durable=True, settings=settings) as url,
        TemporaryDirectory(prefix="holdfast-bench-") as folder,
    ):
        migrate(url)
        async with open_store(url) as store:
            with _running(url, Path(folder), workers) as fleet:
                return await _Measurement(store, url, fleet, scale).run()


class _Fleet:
    """The processes that hold the workers, and their journals."""

    def __init__(self, url: str, folder: Path, workers: int) -> None:
        self.workers = workers
        self._journals = [folder / f"{first}" for first in range(0, workers, PER_PROCESS)]
        self._processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "bench.fleet_workers", url, str(journal)),
                    *(journal.name, str(min(PER_PROCESS, workers - int(journal.name)))),
                ],
                cwd=ROOT,
            )
            for journal in self._journals
        ]

    def notes(self, kind: str, since: float = 0.0) -> list[dict[str, float]]:
        """Return the notes of one kind of all workers."""
        lines = [line for file in self._journals if file.exists() for line in _lines(file)]
        return [note for note in map(json.loads, lines) if kind in note and note["at"] >= since]

    def kill_first(self) -> None:
        """Kill -9 the process of the first workers, with the looker and its deputy."""
        self._processes[0].kill()
        self._processes[0].wait()

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _lines(file: Path) -> list[str]:
    return file.read_text().rpartition("\n")[0].splitlines()


@contextmanager
def _running(url: str, folder: Path, workers: int) -> Iterator[_Fleet]:
    fleet = _Fleet(url, folder, workers)
    try:
        yield fleet
    finally:
        fleet.stop()


class _Measurement:
    """One fleet from its start to the death of one of its machines."""

    def __init__(self, store: Store, url: str, fleet: _Fleet, scale: Scale) -> None:
        self._store = store
        self._url = url
        self._fleet = fleet
        self._scale = scale
        self._figures = Figures(fleet.workers)

    async def run(self) -> Figures:
        begun = time.time()
        await self._wait("registered", self._fleet.workers)
        self._figures.start_seconds = time.time() - begun
        await asyncio.sleep(SETTLING_SECONDS)
        self._figures.per_second = await self._rates(self._scale.idle)
        await self._ping()
        await self._keep_busy()
        self._figures.megabytes = private_bytes(self._url) / MEGABYTE
        await self._kill()
        return self._figures

    async def _rates(self, seconds: float) -> dict[str, float]:
        """Return the calls of each function per second."""
        begun, before = time.monotonic(), self._calls()
        await asyncio.sleep(seconds)
        took, after = time.monotonic() - begun, self._calls()
        return {name: (calls - before.get(name, 0)) / took for name, calls in after.items()}

    def _calls(self) -> dict[str, int]:
        with psycopg.connect(self._url) as connection:
            return dict(connection.execute(CALLS).fetchall())

    async def _ping(self) -> None:
        """Put messages one by one while all workers are idle."""
        count, since, asked_at = self._scale.idle, time.time(), {}
        for _ in range(count):
            [id] = await self._put(1, hold=0)
            asked_at[id] = time.time()
            await asyncio.sleep(PING_SECONDS)
        started = await self._wait("started", count, since)
        self._figures.pick_up = [
            (note["at"] - asked_at[int(note["started"])]) * 1000 for note in started
        ]
        self._figures.claims_per_message = len(self._fleet.notes("claim_ms", since)) / count

    async def _keep_busy(self) -> None:
        """Give every worker a turn at once, and then another, each long enough to be renewed."""
        since, before = time.time(), self._claims()
        await self._put(2 * self._fleet.workers, hold=HOLD_SECONDS)
        await self._wait("started", self._fleet.workers, since)
        self._figures.renewals = (await self._rates(HOLD_SECONDS / 2))["renew"]
        await self._wait("started", 2 * self._fleet.workers, since)
        notes = self._fleet.notes("claim_ms", since)
        self._figures.claim = [note["claim_ms"] for note in notes]
        await asyncio.sleep(HOLD_SECONDS)
        calls, milliseconds = (now - then for then, now in zip(before, self._claims(), strict=True))
        self._figures.claim_in_server = milliseconds / calls

    def _claims(self) -> tuple[float, float]:
        """Return the number of claims so far, and their milliseconds in the server."""
        with psycopg.connect(self._url) as connection:
            return connection.execute(CLAIMS).fetchone() or (0, 0)

    async def _kill(self) -> None:
        """Kill a machine while half of the workers have turns, and wait for its turns elsewhere."""
        since = time.time()
        half = self._fleet.workers // 2
        await self._put(half, hold=HOLD_SECONDS)
        started = await self._wait("started", half, since)
        if self._fleet.workers <= PER_PROCESS:
            return
        killed_at = time.time()
        await asyncio.to_thread(self._fleet.kill_first)
        lost = {
            note["started"]
            for note in started
            if int(str(note["worker"]).rpartition("-")[2]) < PER_PROCESS
        }
        self._figures.reclaim_seconds = await self._last_again(lost, killed_at) - killed_at
        self._figures.noticed_seconds = self._died_at() - killed_at

    def _died_at(self) -> float:
        with psycopg.connect(self._url) as connection:
            [died_at] = connection.execute(DIED_AT).fetchone() or (math.nan,)
            return float(died_at)

    async def _last_again(self, lost: set[float], since: float) -> float:
        """Wait until all lost turns have started again. Returns the moment of the last."""
        give_up_at = time.monotonic() + TIMEOUT_SECONDS
        while True:
            notes = await asyncio.to_thread(self._fleet.notes, "started", since)
            again = {note["started"]: note["at"] for note in reversed(notes)}
            if lost <= set(again):
                return max((again[id] for id in lost), default=since)
            assert time.monotonic() < give_up_at, f"{len(lost - set(again))} turns never came back"
            await asyncio.sleep(0.2)

    async def _put(self, count: int, hold: float) -> list[int]:
        new = [NewEvent(event={"hold": hold}, max_attempts=9) for _ in range(count)]
        return [id for id in await self._store.put(new) if id is not None]

    async def _wait(self, kind: str, count: int, since: float = 0.0) -> list[dict[str, float]]:
        give_up_at = time.monotonic() + TIMEOUT_SECONDS
        while len(notes := await asyncio.to_thread(self._fleet.notes, kind, since)) < count:
            assert time.monotonic() < give_up_at, f"{len(notes)} of {count} {kind}"
            await asyncio.sleep(0.2)
        return notes


def private_bytes(url: str) -> int:
    """Return the bytes of all processes of a server, without the memory that they share."""
    with psycopg.connect(url) as connection:
        [backend] = connection.execute("select pg_backend_pid()").fetchone() or (0,)
        postmaster = _parent(backend)
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return sum(_private(pid) for pid in pids if postmaster in (pid, _parent(pid)))


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _private(pid: int) -> int:
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except OSError:
        return 0
    return (resident - shared) * resource.getpagesize()
