"""Failures of the index: an outage pauses the relay, an error of one document uses attempts."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from holdfast.consumers.memory import (
    DrainResult,
    KnowledgeStoreOutboxRelay,
    RelayOptions,
)
from holdfast.memory.embedder import Embedder
from holdfast.memory.knowledge import (
    KnowledgeScope,
    KnowledgeSource,
    KnowledgeStore,
)
from holdfast.memory.observation import ObservationStore
from holdfast.queue.event import MEMORY
from holdfast.queue.store import Filter, Store
from holdfast.store import open_store
from holdfast.store.memory import open_knowledge, open_observations
from holdfast.testing.clock import Clock
from tests.memory.moody import Moody
from tests.memory.steps import fact, relay_to


class Selective(Moody):
    """A knowledge store that fails for the given subjects in the given way."""

    def __init__(
        self, real: KnowledgeStore, fail: Callable[[], Awaitable[None]], subjects: set[str]
    ) -> None:
        super().__init__(real)
        self._fail = fail
        self._subjects = subjects

    async def upsert(self, scope: KnowledgeScope, documents: KnowledgeSource) -> int:
        if scope.context_id in self._subjects:
            await self._fail()
        return await super().upsert(scope, documents)


async def missing_file() -> None:
    raise FileNotFoundError(2, "No such file or directory", "/models/bert")


async def no_answer() -> None:
    await asyncio.Event().wait()


NINE = [f"bad-{number}" for number in range(9)]


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "no file"), PermissionError(13, "denied"), OSError(28, "full")]
)
async def test_an_index_that_raises_any_other_oserror_uses_attempts_and_ends_as_poison(
    store: Store, observations: ObservationStore, moody: Moody, clock: Clock, error: OSError
) -> None:
    moody.error = error
    await observations.save(fact())
    relay = relay_to(observations, moody, max_attempts=2)
    assert await relay.drain_once() == DrainResult(failed=1)
    clock.tick(seconds=2)
    assert await relay.drain_once() == DrainResult(poisoned=1)
    [dead] = await store.dead(Filter(queue=MEMORY))
    assert dead.error_class == type(error).__name__


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "refused"),
        socket.gaierror(-2, "no name"),
        OSError(errno.EHOSTUNREACH, "no route"),
    ],
)
async def test_only_connection_like_errors_mean_that_the_index_is_away(
    store: Store, observations: ObservationStore, moody: Moody, clock: Clock, error: OSError
) -> None:
    moody.error = error
    await observations.save(fact())
    for _ in range(5):
        relay = relay_to(observations, moody, max_attempts=2)
        assert await relay.drain_once() == DrainResult()
        clock.tick(minutes=2)
    assert [event.attempts for event in await store.waiting(MEMORY, "")] == [0]


@pytest.mark.parametrize("fail", [missing_file, no_answer])
async def test_nine_subjects_that_cannot_be_indexed_do_not_stop_the_others(
    database_url: str, embedder: Embedder, fail: Callable[[], Awaitable[None]]
) -> None:
    """One more subject than the relay works at once, and all that time out come first."""
    async with open_store(database_url) as store:
        observations, real = open_observations(store), open_knowledge(store, embedder)
        await real.active_embedder()
        for subject in NINE:
            await observations.save(fact(subject=subject, id=subject))
        knowledge = Selective(real, fail, {f"acme:USER:{subject}" for subject in NINE})
        async with relay_to(
            observations,
            knowledge,
            claim_duration=timedelta(seconds=1),
            poll_interval=timedelta(milliseconds=50),
            max_attempts=2,
        ):
            for number in range(200):
                # One after the other, so that each shows the relay that the index answers others.
                position = await observations.save(
                    fact(subject=f"good-{number}", id=f"good-{number}")
                )
                assert await observations.wait_indexed(position, within=30)
                if len(await store.dead(Filter(queue=MEMORY))) == len(NINE):
                    return
                await asyncio.sleep(0.1)
    pytest.fail("what cannot be indexed never became poison")


async def test_a_timeout_of_all_documents_uses_no_attempt(
    store: Store, observations: ObservationStore, knowledge: KnowledgeStore, clock: Clock
) -> None:
    for subject in NINE:
        await observations.save(fact(subject=subject, id=subject))
    slow = Selective(knowledge, no_answer, {f"acme:USER:{subject}" for subject in NINE})
    lease = timedelta(milliseconds=100)
    for _ in range(12):
        relay = relay_to(observations, slow, claim_duration=lease, max_attempts=2)
        assert await relay.drain_once() == DrainResult()
        clock.tick(seconds=61)
    assert {event.attempts for event in await store.waiting(MEMORY, "")} == {0}


async def test_a_timeout_of_one_document_uses_attempts_and_ends_as_poison(
    store: Store, observations: ObservationStore, knowledge: KnowledgeStore, clock: Clock
) -> None:
    slow = Selective(knowledge, no_answer, {"acme:USER:bad"})
    options = RelayOptions(claim_duration=timedelta(seconds=2), max_attempts=2)
    relay = KnowledgeStoreOutboxRelay(observations, slow, options=options)  # type: ignore[arg-type]
    await observations.save(fact(subject="bad", id="bad"))
    result = DrainResult()
    for number in range(8):
        # A time-out may be the index's fault, unless it answered others since the one before.
        result += await relay.drain_once()
        relay._breaker.close()
        clock.tick(seconds=61)
        await observations.save(fact(subject="good", id=f"good-{number}"))
    assert (result.failed, result.poisoned) == (1, 1)
    assert [dead.error_class for dead in await store.dead(Filter(queue=MEMORY))] == ["TimeoutError"]
