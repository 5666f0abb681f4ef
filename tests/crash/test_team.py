"""A team that works over messages and a room says the same, once, however often its workers are killed."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

from holdfast.queue.store import Store
from holdfast.routing.router import Address, put_message
from holdfast.testing.trial import trial
from tests.crash.crew import ENOUGH, PATIENCE, Crew
from tests.crash.team import is_over, letters, script, tasks, team_app, transcript
from tests.crash.worker import POINTS

TASKS = 30
KILLS = 8
ROUTING = team_app(script).routing


async def told_in_peace() -> Counter[tuple[str, ...]]:
    """What is said where nobody is killed."""
    async with trial(team_app(script)) as play:
        for text, address in tasks(TASKS):
            await play.say(text, address=address)
        await play.work()
        return await transcript(play.store)


async def test_a_team_says_the_same_once_with_workers_killed_at_random(
    crew: Crew, store: Store
) -> None:
    expected = await told_in_peace()
    assert (
        sum(times for (_, who, text), times in expected.items() if text.startswith("Solved "))
        == TASKS
    )
    waiting = tasks(TASKS)
    crew.wait_ready(crew.hire(team=True, slowness=0.1))
    mines = random.sample(POINTS, len(POINTS))
    while waiting or len(crew.kills()) < KILLS:
        await put(store, waiting[:3])
        del waiting[:3]
        point = mines.pop() if mines else None
        victim = crew.hire(team=True, slowness=0.1, point=point, nth=random.randint(1, 3))
        await asyncio.sleep(random.random() * 0.5)
        if point is None:
            crew.kill(victim)
    crew.hire(team=True, slowness=0.01)
    await wait_over(crew, store)
    crew.dismiss()
    assert await letters(store) == []
    found = await transcript(store)
    assert found - expected == Counter(), "said too often, or not meant to be said"
    assert expected - found == Counter(), "never said"


async def put(store: Store, some: list[tuple[str, Address]]) -> None:
    for text, address in some:
        await put_message(store, ROUTING, text, address, max_attempts=ENOUGH)


async def wait_over(crew: Crew, store: Store) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while not await is_over(store):
        assert time.monotonic() < give_up_at, crew.said()
        await asyncio.sleep(0.02)
