"""Failovers of a real cluster under load: nothing is lost, doubled, or out of order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import cycle, islice
from pathlib import Path

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.migrations.runner import migrate
from holdfast.queue.event import NewEvent
from holdfast.queue.store import Store
from holdfast.store import open_store
from holdfast.testing.servers import Unavailable
from tests.crash.pool import LANES, WorkerPool, check_history, name_of, wait_until
from tests.failover.cluster import Cluster, cluster

FAILOVERS = int(os.environ.get("HOLDFAST_FAILOVERS", "50"))
WAYS = [
    "kill -9 of the server",
    "switchover",
    "dead machine",
    *["kill -9 of the server"] * 6,
    "machine that stays dead",
]
RESUME_SECONDS = 5.0
"""Time after the cluster's own in which puts and work must go on."""
LEASE = 600.0
BURNT = """
select id, attempts from agent.event_hist
where queue = 'inbox' and attempts > case when id % 13 = 0 then 2 else 1 end
"""
KEYS = "select message_id, event_id from agent.message_key where queue = 'inbox'"


@pytest.fixture(scope="module")
def patroni() -> Iterator[Cluster]:
    try:
        with cluster() as running:
            yield running
    except Unavailable as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(reason))


@pytest.fixture
def url(patroni: Cluster) -> str:
    """A migrated database of the test's own."""
    url = patroni.create_database()
    migrate(url)
    return url


class Load:
    """Puts messages all the time, each until it is acknowledged."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.acknowledged = 0
        self.last_at = 0.0

    async def run(self) -> None:
        while True:
            await self._put()
            await asyncio.sleep(0.03)

    async def _put(self) -> None:
        number = self.acknowledged
        new = NewEvent(
            event={"kind": "message", "channel": "api", "message": "hi"},
            lane=f"lane {number % LANES}",
            message_id=name_of(number),
            max_attempts=50,
        )
        while True:
            try:
                await self._store.put([new])
            except StoreUnavailable:
                await asyncio.sleep(0.05)
                continue
            self.acknowledged += 1
            self.last_at = time.monotonic()
            return


@asynccontextmanager
async def loading(url: str) -> AsyncIterator[Load]:
    async with open_store(url) as store, asyncio.TaskGroup() as group:
        load = Load(store)
        putting = group.create_task(load.run())
        try:
            yield load
        finally:
            putting.cancel()


def fail_over(patroni: Cluster, how: str, leader: str) -> None:
    if how == "kill -9 of the server":
        patroni.kill_postgres(leader)
    elif how == "switchover":
        patroni.switch_over()
    else:
        patroni.kill_node(leader)
    if how == "dead machine":
        patroni.start_node(leader)


async def resume_times(patroni: Cluster, pool: WorkerPool, load: Load, how: str) -> list[float]:
    """Fail over. Returns the seconds from the cluster's return to the next put and the next run."""
    leader, timeline = patroni.leader(), patroni.timeline()
    assert leader is not None
    await asyncio.to_thread(fail_over, patroni, how, leader)
    await asyncio.sleep(0.2)
    back_at = await asyncio.to_thread(patroni.wait_writable)
    runs = len(pool.runs())
    await asyncio.to_thread(wait_until, lambda: load.last_at > back_at)
    put_after = load.last_at - back_at
    await asyncio.to_thread(wait_until, lambda: len(pool.runs()) > runs)
    run_after = time.monotonic() - back_at
    assert patroni.timeline() == timeline + 1, f"{how} promoted no standby"
    if how == "machine that stays dead":
        patroni.start_node(leader)
    return [put_after, run_after]


@pytest.mark.parametrize(
    "failovers", [3, pytest.param(FAILOVERS, marks=pytest.mark.chaos)], ids=["few", "many"]
)
async def test_failovers_under_load_lose_and_burn_nothing(
    patroni: Cluster,
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    failovers: int,
) -> None:
    with WorkerPool(url, tmp_path) as pool:
        workers = [pool.start(lease=LEASE, slowness=0.1) for _ in range(3)]
        pool.wait_ready(*workers)
        async with loading(url) as load:
            times = []
            for how in islice(cycle(WAYS), failovers):
                times.append(await resume_times(patroni, pool, load, how))
                await asyncio.to_thread(patroni.wait_healthy)
        async with open_store(url) as store:
            keys = {row[0]: row[1] for row in pool.query(KEYS)}
            pool.stored = [keys[name_of(number)] for number in range(load.acknowledged)]
            await pool.wait_drained(store)
        assert all(map(pool.is_alive, workers)), pool.logs()
        pool.stop()
        await check_history(pool)
        with capsys.disabled():
            puts, runs = (max(column) for column in zip(*times, strict=True))
            print(
                f"\n{len(times)} failovers, {load.acknowledged} messages: puts go on within"
                f" {puts:.1f} s of the cluster, work within {runs:.1f} s"
            )
        assert pool.query(BURNT) == []
        assert max(max(pair) for pair in times) < RESUME_SECONDS


@pytest.mark.chaos
async def test_the_turn_of_a_worker_killed_during_a_failover_starts_again_soon(
    patroni: Cluster, url: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with WorkerPool(url, tmp_path) as pool:
        workers = [pool.start(lease=LEASE, workers=1) for _ in range(3)]
        pool.wait_ready(*workers)
        async with open_store(url) as store:
            [id] = await pool.put(store, 1, gates=[str(gate), str(gate)])
        victim = await asyncio.to_thread(
            wait_until, lambda: next((one for one in workers if pool.leased_by(one)), None)
        )
        leader = patroni.leader()
        assert leader is not None
        pool.kill(victim)
        await asyncio.to_thread(patroni.kill_postgres, leader)
        await asyncio.sleep(0.2)
        back_at = await asyncio.to_thread(patroni.wait_writable)
        await asyncio.to_thread(wait_until, lambda: len(pool.runs()) > 1)
        assert time.monotonic() - back_at < RESUME_SECONDS
        gate.touch()
        async with open_store(url) as store:
            await pool.wait_drained(store)
        assert [run.attempt for run in pool.runs() if run.id == id] == [1, 2]
        pool.stop()
