"""A user's own index with the methods of the contract alone: it works, fails and hangs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from socket import gaierror
from typing import Any

import pytest

from holdfast import (
    DEFAULT_AGENT_NAME,
    DrainResult,
    KnowledgeDocument,
    KnowledgeScope,
    KnowledgeStoreOutboxRelay,
    ObservationStore,
    RelayOptions,
    open_knowledge,
)
from holdfast.memory import LocalEmbedder
from holdfast.queue.event import MEMORY
from holdfast.queue.store import Filter, Store
from tests.memory.steps import fact


class Plain:
    """An index in a dictionary, with plain methods."""

    def __init__(self) -> None:
        self.texts: dict[tuple[KnowledgeScope, str], str] = {}
        self.error: BaseException | None = None

    def upsert(self, scope: KnowledgeScope, documents: Iterable[KnowledgeDocument]) -> int:
        if self.error is not None:
            raise self.error
        self.texts |= {(scope, document.id): document.content for document in documents}
        return 1

    def delete(
        self, scope: KnowledgeScope, ids: Iterable[str], *, version: int | None = None
    ) -> int:
        return len([self.texts.pop((scope, id_), None) for id_ in ids])


class AsyncIndex(Plain):
    """An index in a dictionary, with async methods."""

    async def upsert(  # type: ignore[override]
        self, scope: KnowledgeScope, documents: Iterable[KnowledgeDocument]
    ) -> int:
        return super().upsert(scope, documents)

    async def delete(  # type: ignore[override]
        self, scope: KnowledgeScope, ids: Iterable[str], *, version: int | None = None
    ) -> int:
        return super().delete(scope, ids, version=version)


@pytest.fixture(params=[Plain, AsyncIndex])
def own(request: pytest.FixtureRequest) -> Any:
    return request.param()


async def test_a_users_index_follows_saves_and_deletes(
    observations: ObservationStore, own: Any
) -> None:
    relay = KnowledgeStoreOutboxRelay(observations, own)
    await observations.save(fact("tea"))
    assert await relay.drain_once() == DrainResult(processed=1)
    assert own.texts == {(KnowledgeScope(DEFAULT_AGENT_NAME, "acme:USER:ann"), "w"): "tea"}
    await observations.delete("acme", "w")
    assert (await relay.drain_once()).processed == 1
    assert own.texts == {}


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(),
        TimeoutError(),
        gaierror(-2, "no such name"),
        OSError(113, "no route"),
    ],
)
async def test_an_unreachable_index_of_a_user_uses_no_attempt(
    store: Store, observations: ObservationStore, own: Any, error: Exception
) -> None:
    own.error = error
    await observations.save(fact())
    assert await KnowledgeStoreOutboxRelay(observations, own).drain_once() == DrainResult()
    [event] = await store.waiting(MEMORY, "")
    assert event.attempts == 0


@pytest.mark.parametrize(
    "error", [KeyError("x"), RecursionError(), AssertionError(), ExceptionGroup("g", [OSError()])]
)
async def test_any_error_of_a_users_index_is_a_failure(
    store: Store, observations: ObservationStore, own: Any, error: Exception
) -> None:
    own.error = error
    await observations.save(fact())
    relay = KnowledgeStoreOutboxRelay(observations, own, options=RelayOptions(max_attempts=1))
    assert await relay.drain_once() == DrainResult(poisoned=1)
    [dead] = await store.dead(Filter(queue=MEMORY))
    assert str(dead.last_error).startswith(type(error).__name__)


class Hanging(AsyncIndex):
    """An index that never answers until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = True
        self.entered = asyncio.Event()

    async def upsert(  # type: ignore[override]
        self, scope: KnowledgeScope, documents: Iterable[KnowledgeDocument]
    ) -> int:
        self.entered.set()
        if self.hangs:
            await asyncio.Event().wait()
        return await super().upsert(scope, documents)


async def test_a_hanging_index_counts_as_unreachable_and_the_relay_stops_in_time(
    store: Store, observations: ObservationStore
) -> None:
    own: Any = Hanging()
    options = RelayOptions(claim_duration=timedelta(milliseconds=200))
    await observations.save(fact())
    assert (
        await KnowledgeStoreOutboxRelay(observations, own, options=options).drain_once()
        == DrainResult()
    )
    relay = KnowledgeStoreOutboxRelay(observations, own)
    own.entered.clear()
    relay.start()
    position = await observations.save(fact(subject="bob", id="b"))
    await own.entered.wait()
    began = time.monotonic()
    await relay.stop()
    assert time.monotonic() - began < 5.5
    own.hangs = False
    async with KnowledgeStoreOutboxRelay(observations, own):
        assert await observations.wait_indexed(position, within=10)


async def test_without_the_packages_of_memory_changes_wait_and_use_no_attempt(
    store: Store, observations: ObservationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    knowledge = open_knowledge(store, LocalEmbedder())
    await observations.save(fact())
    if await knowledge.tables.has_vectors():
        assert (
            await KnowledgeStoreOutboxRelay(observations, knowledge).drain_once() == DrainResult()
        )
        [event] = await store.waiting(MEMORY, "")
        assert event.attempts == 0
