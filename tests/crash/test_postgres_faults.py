"""Sessions are ended and the server is stopped under running turns: nobody stops, nothing is lost or done twice."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.queue.store import Store
from holdfast.store import open_store
from tests.crash.crew import Crew, judge, until
from tests.private_server import Server

END_ALL_OTHERS = """
select pg_terminate_backend(pid) from pg_stat_activity
where pid <> pg_backend_pid() and backend_type = 'client backend' and datname = current_database()
"""

MOMENT = 30.0
"""Seconds that a busy machine may need until all are connected again."""


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_sessions_that_are_ended_cost_no_turn(crew: Crew, store: Store) -> None:
    """A process that only lost its connections for a moment keeps its work."""
    gate = crew.folder / "gate"
    workers = [crew.hire(workers=3, between_looks=MOMENT) for _ in range(2)]
    crew.wait_ready(*workers)
    held = await crew.put(store, 3, gates=[str(gate)])
    until(lambda: len(crew.runs()) == 3)
    crew.write(END_ALL_OTHERS)
    gate.touch()
    async with open_store(crew.url) as after:
        await crew.put(after, 100)
        await crew.wait_drained(after)
    crew.dismiss()
    await judge(crew)
    assert [run.attempt for run in crew.runs() if run.id in held and run.id % 13] == [1] * sum(
        id % 13 > 0 for id in held
    )


async def test_the_server_is_stopped_fast_and_at_once_under_load(
    private_crew: Crew, server: Server
) -> None:
    crew = private_crew
    crew.wait_ready(*[crew.hire(slowness=0.05, between_looks=MOMENT) for _ in range(2)])
    for how in ("fast", "immediate"):
        async with open_store(server.url) as store:
            await crew.put(store, 80)
            seen = len(crew.runs())
            await asyncio.to_thread(until, lambda seen=seen: len(crew.runs()) > seen + 10)  # type: ignore[misc]
        await asyncio.to_thread(server.stop, how)
        assert all(map(crew.lives, crew.workers))
        await asyncio.to_thread(server.start)
    async with open_store(server.url) as store:
        await crew.put(store, 20)
        await crew.wait_drained(store)
    crew.dismiss()
    await judge(crew)
