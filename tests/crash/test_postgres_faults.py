"""Ended sessions and server stops under running turns lose nothing, and no process ends."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.queue.store import Store
from holdfast.store import open_store
from tests.crash.pool import WorkerPool, check_history, wait_until
from tests.private_server import Server

END_ALL_OTHERS = """
select pg_terminate_backend(pid) from pg_stat_activity
where pid <> pg_backend_pid() and backend_type = 'client backend' and datname = current_database()
"""

RECONNECT_SECONDS = 30.0
"""Time that a busy machine may need until all processes are connected again."""


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_ended_sessions_cost_no_turn(pool: WorkerPool, store: Store) -> None:
    """A process that lost its connections for a moment keeps its work."""
    gate = pool.folder / "gate"
    workers = [pool.start(workers=3, between_looks=RECONNECT_SECONDS) for _ in range(2)]
    pool.wait_ready(*workers)
    held = await pool.put(store, 3, gates=[str(gate)])
    wait_until(lambda: len(pool.runs()) == 3)
    pool.write(END_ALL_OTHERS)
    gate.touch()
    async with open_store(pool.url) as after:
        await pool.put(after, 100)
        await pool.wait_drained(after)
    pool.stop()
    await check_history(pool)
    assert [run.attempt for run in pool.runs() if run.id in held and run.id % 13] == [1] * sum(
        id % 13 > 0 for id in held
    )


async def test_a_fast_and_an_immediate_stop_of_the_server_lose_nothing(
    private_pool: WorkerPool, server: Server
) -> None:
    pool = private_pool
    pool.wait_ready(*[pool.start(slowness=0.05, between_looks=RECONNECT_SECONDS) for _ in range(2)])
    for how in ("fast", "immediate"):
        async with open_store(server.url) as store:
            await pool.put(store, 80)
            seen = len(pool.runs())
            await asyncio.to_thread(wait_until, lambda: len(pool.runs()) > seen + 10)  # noqa: B023
        await asyncio.to_thread(server.stop, how)
        assert all(map(pool.is_alive, pool.workers))
        await asyncio.to_thread(server.start)
    async with open_store(server.url) as store:
        await pool.put(store, 20)
        await pool.wait_drained(store)
    pool.stop()
    await check_history(pool)
