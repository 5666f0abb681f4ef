"""Processes die at every point of a turn's way, stand still past their leases, or hear nothing: nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from holdfast.queue.event import FinishedEvent
from holdfast.queue.store import Filter, Store
from tests.crash.crew import PATIENCE, Crew, judge, unanswered, until
from tests.crash.worker import BETWEEN, POINTS


async def test_a_process_that_dies_at_any_point_loses_nothing(crew: Crew, store: Store) -> None:
    await crew.put(store, 150)
    doomed = [crew.hire(point=point, nth=2, workers=3) for point in POINTS]
    until(lambda: not any(map(crew.lives, doomed)))
    crew.hire()
    await crew.put(store, 50)
    await crew.wait_drained(store)
    crew.dismiss()
    await judge(crew)
    assert sorted(kill["point"] for kill in crew.kills()) == sorted(POINTS)


@pytest.mark.parametrize(("apart", "responses"), [("before", 2), ("after", 0)])
async def test_a_response_that_is_stored_apart_from_its_end_would_be_found(
    crew: Crew, store: Store, apart: str, responses: int
) -> None:
    """The faults that one transaction prevents are put in: a crash between the two doubles an answer, or loses it."""
    await crew.put(store, 60)
    doomed = crew.hire(apart=apart, point=BETWEEN, nth=3, workers=3)
    until(lambda: not crew.lives(doomed))
    crew.hire(apart=apart)
    await crew.wait_drained(store)
    crew.dismiss()
    found = unanswered(crew)
    assert found
    assert all(fault.endswith(f"has {responses} responses") for fault in found)
    with pytest.raises(AssertionError):
        await judge(crew)


async def test_the_work_of_a_killed_process_is_claimed_again_within_five_seconds(
    crew: Crew, store: Store
) -> None:
    victim = crew.hire(lease=600)
    await crew.put(store, gates=[str(crew.folder / "never")])
    until(crew.runs)
    crew.wait_ready(crew.hire(lease=600))
    killed_at = time.monotonic_ns()
    crew.kill(victim)
    [_, again] = until(lambda: runs if len(runs := crew.runs()) == 2 else [])
    assert (again.started_at - killed_at) / 1e9 < 5
    await crew.wait_drained(store)
    crew.dismiss()
    assert len((await judge(crew)).reruns) == 1


async def give_work_until_it_takes_some(
    crew: Crew, store: Store, worker: int, *, besides: int
) -> None:
    """Again and again, as others may take all of it."""
    give_up_at = time.monotonic() + PATIENCE
    while not any(run.process == worker and run.id != besides for run in crew.runs()):
        assert time.monotonic() < give_up_at, crew.said()
        await crew.put(store, 5)
        await asyncio.sleep(0.02)


async def test_a_process_that_stood_still_past_its_lease_is_refused(
    crew: Crew, store: Store
) -> None:
    gate = crew.folder / "gate"
    sleeper = crew.hire(lease=1, workers=1)
    [id] = await crew.put(store, gates=[str(gate)])
    until(crew.runs)
    crew.halt(sleeper)
    crew.hire(lease=1)
    await crew.wait_drained(store)
    gate.touch()
    os.kill(sleeper, signal.SIGCONT)
    await give_work_until_it_takes_some(crew, store, sleeper, besides=id)
    await crew.wait_drained(store)
    crew.dismiss()
    await judge(crew, leases_may_end=True)
    first, second = [run for run in crew.runs() if run.id == id]
    assert (first.process, first.ended in (None, "lost")) == (sleeper, True)
    assert second.ended == "completed"


async def test_a_process_that_stood_still_cannot_end_what_another_is_working_on(
    crew: Crew, store: Store
) -> None:
    gates = [crew.folder / "first", crew.folder / "second"]
    sleeper = crew.hire(lease=1, workers=1)
    [id] = await crew.put(store, gates=list(map(str, gates)))
    until(crew.runs)
    crew.halt(sleeper)
    owner = crew.hire(lease=1, workers=1)
    until(lambda: len(crew.runs()) == 2)
    gates[0].touch()
    os.kill(sleeper, signal.SIGCONT)
    # Free again, so that its end was refused, or its work dropped.
    await give_work_until_it_takes_some(crew, store, sleeper, besides=id)
    assert crew.leased_by(owner) == [id]
    assert id not in [
        response.parent_id for response in await store.waiting("outbox", "api", limit=1000)
    ]
    gates[1].touch()
    await crew.wait_drained(store)
    crew.dismiss()
    await judge(crew, leases_may_end=True)
    assert [(run.process, run.ended == "completed") for run in crew.runs() if run.id == id] == [
        (sleeper, False),
        (owner, True),
    ]


async def test_an_event_that_kills_its_process_runs_out_of_attempts(
    crew: Crew, store: Store
) -> None:
    [poison] = await crew.put(store, max_attempts=1, kills=True)
    victim = crew.hire(lease=600)
    until(lambda: not crew.lives(victim))
    crew.hire(lease=600)
    [letter] = await wait_for_dead_letter(store)
    assert (letter.id, letter.outcome, letter.attempts) == (poison, "dead", 1)
    assert "died" in (letter.last_error or "")


async def wait_for_dead_letter(store: Store) -> list[FinishedEvent]:
    async with asyncio.timeout(PATIENCE):
        while not (letters := await store.dead(Filter())):  # noqa: ASYNC110 - nothing tells of it but a look
            await asyncio.sleep(0.02)
    return letters


async def test_processes_that_hear_no_wake_up_find_their_work_by_looking(
    crew: Crew, store: Store
) -> None:
    crew.hire(deaf=True, poll=0.1)
    crew.hire(deaf=True, poll=0.1)
    for _ in range(5):
        await crew.put(store, 20)
        await crew.wait_drained(store, 20)
    crew.dismiss()
    report = await judge(crew)
    assert report.reruns == []
    assert await store.dead(Filter()) == []


async def test_the_clock_is_put_forward_and_back_under_running_turns(
    crew: Crew, store: Store
) -> None:
    step(crew, 0)
    workers = [crew.hire(lease=5, slowness=0.2, poll=0.2) for _ in range(2)]
    crew.wait_ready(*workers)
    await crew.put(store, 60)
    for number, seconds in enumerate((3600, 3599, 7200, 7198), 1):
        step(crew, seconds)
        until(lambda number=number: len(crew.runs()) >= 8 * number)  # type: ignore[misc]
    await crew.wait_drained(store)
    crew.dismiss()
    await judge(crew, leases_may_end=True)


def step(crew: Crew, seconds: float) -> None:
    """All processes see it at once, as they would if the clock of their machine were set."""
    new = crew.folder / "clock.new"
    new.write_text(str(seconds))
    new.replace(crew.folder / "clock")
