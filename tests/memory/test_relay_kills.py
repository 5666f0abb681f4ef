"""Two relays that are killed again and again leave an index that matches the store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from holdfast.errors import HoldfastError
from holdfast.memory.maintenance import verify
from holdfast.memory.observation import ObservationStore
from holdfast.queue.event import MEMORY
from holdfast.queue.store import Filter
from holdfast.store import open_store
from holdfast.store.memory import open_knowledge, open_observations
from tests.fork_server import PipedProcess
from tests.memory.relay_process import SlowEmbedder
from tests.memory.steps import fact, wait_indexed

RELAYS = 2
WRITERS = 4
SUBJECTS = ("ann", "bob", "cid", "dan", "eve")
IDS = [f"fact-{number}" for number in range(40)]
CONTENTS = [f"number {number} of the things that are said" for number in range(6)]
LIVES = (0.05, 0.8)
"""Minimum and maximum lifetime of a working relay, in seconds."""


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def a_relay(url: str) -> AsyncIterator[None]:
    """Start a relay process; kill it at the end of the block."""
    with PipedProcess("tests.memory.relay_process", url) as process:
        assert await asyncio.to_thread(process.read_line) == "ready"
        yield


class Killer:
    """Kills relays while changes are written, and counts the kills."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.kills = 0
        self.written = asyncio.Event()

    async def rule(self, at_least: int) -> None:
        while not self.written.is_set() or self.kills < at_least:
            async with a_relay(self._url):
                await asyncio.sleep(random.uniform(*LIVES))
            self.kills += 1


async def change(observations: ObservationStore) -> None:
    """Make a random change. There are few contents, so many changes change nothing."""
    one, other = random.sample(IDS, 2)
    new = fact(random.choice(CONTENTS), one, random.choice(SUBJECTS))
    match random.randrange(10):
        case 0 | 1:
            await observations.delete("acme", one)
        case 2:
            await observations.soft_delete("acme", one)
        case 3:
            known = await observations.find_by_id("acme", one)
            merged = new if known is None else replace(new, subject_id=known.subject_id)
            with suppress(HoldfastError):
                # Either may be deleted by now, or have another subject.
                await observations.merge(one, other, merged)
        case _:
            await observations.save(new)


async def change_much(observations: ObservationStore, changes: int) -> None:
    for _ in range(changes):
        await change(observations)
        await asyncio.sleep(random.random() * 0.04)


async def differ(url: str, changes: int, kills: int) -> None:
    async with open_store(url) as store:
        observations, knowledge = open_observations(store), open_knowledge(store, SlowEmbedder())
        fate = Killer(url)
        async with asyncio.TaskGroup() as group:
            for _ in range(RELAYS):
                group.create_task(fate.rule(kills))
            async with asyncio.TaskGroup() as writing:
                for _ in range(WRITERS):
                    writing.create_task(change_much(observations, changes // WRITERS))
            fate.written.set()
        async with a_relay(url), a_relay(url):
            await wait_indexed(store)
        assert fate.kills >= kills
        assert await verify(observations, knowledge) == []
        assert await observations.count() == (await knowledge.status()).documents > 0
        assert await store.dead(Filter(queue=MEMORY)) == []


async def test_two_relays_that_are_killed_leave_no_difference(database_url: str) -> None:
    await differ(database_url, changes=300, kills=4)


@pytest.mark.chaos
async def test_two_relays_that_are_killed_leave_no_difference_after_two_thousand_changes(
    database_url: str,
) -> None:
    await differ(database_url, changes=2_000, kills=30)
