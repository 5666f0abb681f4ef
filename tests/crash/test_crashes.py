"""Processes that die, stand still past their lease or miss wake-ups lose nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from holdfast.queue.event import FinishedEvent
from holdfast.queue.store import Filter, Store
from tests.crash.pool import WAIT_SECONDS, WorkerPool, check_history, unanswered, wait_until
from tests.crash.worker import BETWEEN, POINTS


async def test_a_process_that_dies_at_any_point_loses_nothing(
    pool: WorkerPool, store: Store
) -> None:
    await pool.put(store, 150)
    doomed = [pool.start(point=point, nth=2, workers=3) for point in POINTS]
    wait_until(lambda: not any(map(pool.is_alive, doomed)))
    pool.start()
    await pool.put(store, 50)
    await pool.wait_drained(store)
    pool.stop()
    await check_history(pool)
    assert sorted(kill["point"] for kill in pool.kills()) == sorted(POINTS)


@pytest.mark.parametrize(("apart", "responses"), [("before", 2), ("after", 0)])
async def test_the_check_finds_responses_that_are_stored_apart_from_the_settle(
    pool: WorkerPool, store: Store, apart: str, responses: int
) -> None:
    """Without one transaction, a crash in between doubles or loses a response."""
    await pool.put(store, 60)
    doomed = pool.start(apart=apart, point=BETWEEN, nth=3, workers=3)
    wait_until(lambda: not pool.is_alive(doomed))
    pool.start(apart=apart)
    await pool.wait_drained(store)
    pool.stop()
    found = unanswered(pool)
    assert found
    assert all(fault.endswith(f"has {responses} responses") for fault in found)
    with pytest.raises(AssertionError):
        await check_history(pool)


async def test_the_work_of_a_killed_process_is_claimed_again_within_five_seconds(
    pool: WorkerPool, store: Store
) -> None:
    victim = pool.start(lease=600)
    await pool.put(store, gates=[str(pool.folder / "never")])
    wait_until(pool.runs)
    pool.wait_ready(pool.start(lease=600))
    killed_at = time.monotonic_ns()
    pool.kill(victim)
    [_, again] = wait_until(lambda: runs if len(runs := pool.runs()) == 2 else [])
    assert (again.started_at - killed_at) / 1e9 < 5
    await pool.wait_drained(store)
    pool.stop()
    assert len((await check_history(pool)).reruns) == 1


async def put_until_it_claims_some(
    pool: WorkerPool, store: Store, worker: int, *, besides: int
) -> None:
    """Put messages again and again, since other processes may claim all of them."""
    give_up_at = time.monotonic() + WAIT_SECONDS
    while not any(run.process == worker and run.id != besides for run in pool.runs()):
        assert time.monotonic() < give_up_at, pool.logs()
        await pool.put(store, 5)
        await asyncio.sleep(0.02)


async def test_a_process_that_stood_still_past_its_lease_is_refused(
    pool: WorkerPool, store: Store
) -> None:
    gate = pool.folder / "gate"
    sleeper = pool.start(lease=1, workers=1)
    [id] = await pool.put(store, gates=[str(gate)])
    wait_until(pool.runs)
    pool.suspend(sleeper)
    pool.start(lease=1)
    await pool.wait_drained(store)
    gate.touch()
    os.kill(sleeper, signal.SIGCONT)
    await put_until_it_claims_some(pool, store, sleeper, besides=id)
    await pool.wait_drained(store)
    pool.stop()
    await check_history(pool, leases_may_end=True)
    first, second = [run for run in pool.runs() if run.id == id]
    assert (first.process, first.ended in (None, "lost")) == (sleeper, True)
    assert second.ended == "completed"


async def test_a_process_that_stood_still_cannot_end_what_another_is_working_on(
    pool: WorkerPool, store: Store
) -> None:
    gates = [pool.folder / "first", pool.folder / "second"]
    sleeper = pool.start(lease=1, workers=1)
    [id] = await pool.put(store, gates=list(map(str, gates)))
    wait_until(pool.runs)
    pool.suspend(sleeper)
    owner = pool.start(lease=1, workers=1)
    wait_until(lambda: len(pool.runs()) == 2)
    gates[0].touch()
    os.kill(sleeper, signal.SIGCONT)
    # It is free again, so its settle was refused or its work was dropped.
    await put_until_it_claims_some(pool, store, sleeper, besides=id)
    assert pool.leased_by(owner) == [id]
    assert id not in [
        response.parent_id for response in await store.waiting("outbox", "api", limit=1000)
    ]
    gates[1].touch()
    await pool.wait_drained(store)
    pool.stop()
    await check_history(pool, leases_may_end=True)
    assert [(run.process, run.ended == "completed") for run in pool.runs() if run.id == id] == [
        (sleeper, False),
        (owner, True),
    ]


async def test_an_event_that_kills_its_process_runs_out_of_attempts(
    pool: WorkerPool, store: Store
) -> None:
    [poison] = await pool.put(store, max_attempts=1, kills=True)
    victim = pool.start(lease=600)
    wait_until(lambda: not pool.is_alive(victim))
    pool.start(lease=600)
    [dead] = await wait_for_dead_letter(store)
    assert (dead.id, dead.outcome, dead.attempts) == (poison, "dead", 1)
    assert "died" in (dead.last_error or "")


async def wait_for_dead_letter(store: Store) -> list[FinishedEvent]:
    async with asyncio.timeout(WAIT_SECONDS):
        while not (found := await store.dead(Filter())):  # noqa: ASYNC110 - no signal for it
            await asyncio.sleep(0.02)
    return found


async def test_processes_without_wake_ups_find_their_work_by_polling(
    pool: WorkerPool, store: Store
) -> None:
    pool.start(ignores_wakeups=True, poll=0.1)
    pool.start(ignores_wakeups=True, poll=0.1)
    for _ in range(5):
        await pool.put(store, 20)
        await pool.wait_drained(store, 20)
    pool.stop()
    report = await check_history(pool)
    assert report.reruns == []
    assert await store.dead(Filter()) == []


async def test_clock_steps_forward_and_back_under_running_turns_lose_nothing(
    pool: WorkerPool, store: Store
) -> None:
    set_clock(pool, 0)
    workers = [pool.start(lease=5, slowness=0.2, poll=0.2) for _ in range(2)]
    pool.wait_ready(*workers)
    await pool.put(store, 60)
    for number, seconds in enumerate((3600, 3599, 7200, 7198), 1):
        set_clock(pool, seconds)
        wait_until(lambda number=number: len(pool.runs()) >= 8 * number)  # type: ignore[misc]
    await pool.wait_drained(store)
    pool.stop()
    await check_history(pool, leases_may_end=True)


def set_clock(pool: WorkerPool, seconds: float) -> None:
    """Set the clock of all processes at once, as a step of the machine's clock would."""
    new = pool.folder / "clock.new"
    new.write_text(str(seconds))
    new.replace(pool.folder / "clock")
