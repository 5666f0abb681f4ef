"""A team gives the same answers, once each, however often its workers are killed."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

from holdfast.chat import ChatStore
from holdfast.routing.router import Address, put_message
from holdfast.testing.trial import trial
from tests.crash.pool import MANY_ATTEMPTS, WAIT_SECONDS, WorkerPool
from tests.crash.team import dead_letter_errors, is_inbox_empty, script, tasks, team_app, transcript
from tests.crash.worker import POINTS

TASKS = 30
KILLS = 8
ROUTING = team_app(script).routing


async def undisturbed_transcript() -> Counter[tuple[str, ...]]:
    """Return the transcript of a run in which nobody is killed."""
    async with trial(team_app(script)) as play:
        for text, address in tasks(TASKS):
            await play.say(text, address=address)
        await play.work()
        return await transcript(play.store)


async def test_a_team_answers_the_same_once_while_its_workers_are_killed_at_random(
    pool: WorkerPool, store: ChatStore
) -> None:
    expected = await undisturbed_transcript()
    assert (
        sum(times for (_, _, text), times in expected.items() if text.startswith("Solved "))
        == TASKS
    )
    waiting = tasks(TASKS)
    pool.wait_ready(pool.start(team=True, slowness=0.1))
    points = random.sample(POINTS, len(POINTS))
    while waiting or len(pool.kills()) < KILLS:
        await put(store, waiting[:3])
        del waiting[:3]
        point = points.pop() if points else None
        victim = pool.start(team=True, slowness=0.1, point=point, nth=random.randint(1, 3))
        await asyncio.sleep(random.random() * 0.5)
        if point is None:
            pool.kill(victim)
    pool.start(team=True, slowness=0.01)
    await wait_until_done(pool, store)
    pool.stop()
    assert await dead_letter_errors(store) == []
    found = await transcript(store)
    assert found - expected == Counter(), "texts that are doubled or unexpected"
    assert expected - found == Counter(), "missing texts"


async def put(store: ChatStore, some: list[tuple[str, Address]]) -> None:
    for text, address in some:
        await put_message(store, ROUTING, text, address, max_attempts=MANY_ATTEMPTS)


async def wait_until_done(pool: WorkerPool, store: ChatStore) -> None:
    give_up_at = time.monotonic() + WAIT_SECONDS
    while not await is_inbox_empty(store):
        assert time.monotonic() < give_up_at, pool.logs()
        await asyncio.sleep(0.02)
