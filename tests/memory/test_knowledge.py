"""The knowledge index: search by words and meaning, within a scope, and never an older version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from holdfast.consumers.memory import KnowledgeStoreOutboxRelay
from holdfast.memory.embedder import Embedder
from holdfast.memory.index import IndexTables, KnowledgeIndex
from holdfast.memory.indexing import IndexedDocument
from holdfast.memory.knowledge import (
    IndexOptions,
    KnowledgeDocument,
    KnowledgeScope,
    KnowledgeStore,
)
from holdfast.memory.maintenance import verify
from holdfast.memory.observation import ObservationStore
from holdfast.queue.store import Store
from holdfast.store.memory import open_knowledge, open_observations
from holdfast.testing.clock import Clock
from tests.memory.steps import ANN, BOB, fact, wait_indexed


def document(id: str, content: str, version: int = 1) -> KnowledgeDocument:
    return KnowledgeDocument(id=id, content=content, version=version)


class Counting:
    """An embedder that records its texts."""

    def __init__(self, real: Embedder) -> None:
        self.model, self.dimensions, self.texts = real.model, real.dimensions, 0
        self._real = real

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.texts += len(texts)
        return self._real.embed(texts)


async def search(
    knowledge: KnowledgeStore, query: str, scope: KnowledgeScope = ANN, **options: Any
) -> list[str]:
    return [hit.id for hit in await knowledge.search(scope, query, **options)]


async def test_a_document_is_found_by_a_word_of_it(knowledge: KnowledgeStore) -> None:
    await knowledge.upsert(
        ANN, [document("a", "Ann's tax number is ZX81"), document("b", "Ann plays the cello")]
    )
    assert (await search(knowledge, "ZX81"))[0] == "a"


async def test_a_document_is_found_by_its_meaning(knowledge: KnowledgeStore) -> None:
    await knowledge.upsert(
        ANN,
        [
            document("a", "Her car broke down on the motorway"),
            document("b", "She bakes bread on Sundays"),
        ],
    )
    if (await knowledge.status()).vectors:
        assert (await search(knowledge, "vehicle failure on a highway"))[0] == "a"


async def test_a_search_never_leaves_its_scope(knowledge: KnowledgeStore) -> None:
    await knowledge.upsert(ANN, [document("a", "likes green tea")])
    await knowledge.upsert(BOB, [document("b", "likes green tea")])
    assert await search(knowledge, "green tea") == ["a"]
    assert await search(knowledge, "green tea", BOB) == ["b"]
    assert await search(knowledge, "green tea", KnowledgeScope("other", ANN.context_id)) == []


async def test_scores_are_between_0_and_1_and_have_an_optional_minimum(
    knowledge: KnowledgeStore,
) -> None:
    await knowledge.upsert(
        ANN, [document("a", "green tea in the morning"), document("b", "a bicycle made of steel")]
    )
    hits = await knowledge.search(ANN, "green tea in the morning")
    assert all(0 <= hit.score <= 1 for hit in hits)
    assert hits[0].score == max(hit.score for hit in hits)
    assert await search(knowledge, "green tea in the morning", min_score=0.9) == ["a"]
    assert len(await search(knowledge, "tea or steel", max_results=1)) == 1
    assert await search(knowledge, " ") == []


@pytest.mark.parametrize(
    "query", ['"', "a AND (b", "NEAR(", "*", "'; drop table", "x\x00y", "ÄÖ ü 漢字", "-", ":"]
)
async def test_any_question_may_be_asked(knowledge: KnowledgeStore, query: str) -> None:
    await knowledge.upsert(ANN, [document("a", "something")])
    await knowledge.search(ANN, query)


async def test_an_older_version_never_replaces_a_newer_one(knowledge: KnowledgeStore) -> None:
    await knowledge.upsert(ANN, [document("a", "new", 5)])
    assert await knowledge.upsert(ANN, [document("a", "old", 4)]) == 0
    assert await knowledge.delete(ANN, ["a"], version=4) == 0
    assert await search(knowledge, "new") == ["a"]


async def test_a_late_writer_does_not_restore_a_deleted_document(
    knowledge: KnowledgeStore,
) -> None:
    await knowledge.upsert(ANN, [document("a", "first", 1)])
    assert await knowledge.delete(ANN, ["a", "never-there"], version=2) == 1
    assert (
        await knowledge.upsert(ANN, [document("a", "first", 1), document("never-there", "x", 1)])
        == 0
    )
    assert await knowledge.documents(ANN) == {}
    assert await knowledge.upsert(ANN, [document("a", "returned", 3)]) == 1
    assert await search(knowledge, "returned") == ["a"]


async def test_unchanged_content_is_not_embedded_again(store: Store, embedder: Embedder) -> None:
    counting = Counting(embedder)
    knowledge = open_knowledge(store, counting)
    await knowledge.upsert(ANN, [document("a", "the same", 1)])
    await knowledge.upsert(ANN, [document("a", "the same", 2)])
    # Without vectors, nothing is embedded.
    each = 1 if (await knowledge.status()).vectors else 0
    assert counting.texts == each
    assert await knowledge.upsert(ANN, [document("a", "older", 1)]) == 0
    await knowledge.upsert(ANN, [document("a", "another", 3)])
    assert counting.texts == 2 * each


async def test_a_change_of_model_embeds_again(store: Store, embedder: Embedder) -> None:
    other = Counting(embedder)
    other.model = "other"
    await open_knowledge(store, embedder).upsert(ANN, [document("a", "the same", 1)])
    knowledge = open_knowledge(store, other)
    status = await knowledge.status()
    each = 1 if status.vectors else 0
    assert (status.documents, status.other_model) == (1, each)
    await knowledge.upsert(ANN, [document("a", "the same", 1)])
    assert (other.texts, (await knowledge.status()).other_model) == (each, 0)


async def test_a_long_document_is_found_by_its_end(knowledge: KnowledgeStore) -> None:
    await knowledge.upsert(
        ANN, [document("long", "nothing to see here. " * 400 + "The treasure is under the oak.")]
    )
    await knowledge.upsert(ANN, [document("other", "An invoice from March")])
    hits = await knowledge.search(ANN, "Where is the treasure?")
    assert (hits[0].id, "under the oak" in hits[0].content) == ("long", True)
    await knowledge.upsert(ANN, [document("long", "short now", 2)])
    assert "long" not in [hit.id for hit in await knowledge.search(ANN, "treasure", min_score=0.5)]


async def test_a_reindex_replaces_the_scope_by_the_source(
    knowledge: KnowledgeStore,
) -> None:
    await knowledge.upsert(ANN, [document("gone", "old"), document("kept", "kept")])
    await knowledge.upsert(BOB, [document("bob", "his")])
    progress: list[int] = []
    source = (document(f"d{number}", f"fact number {number}", 2) for number in range(5))
    options = IndexOptions(batch_size=2, on_progress=progress.append)
    assert await knowledge.reindex(ANN, source, options) == 5
    assert sorted(await knowledge.documents(ANN)) == ["d0", "d1", "d2", "d3", "d4"]
    assert (sorted(await knowledge.documents(BOB)), progress) == (["bob"], [2, 4, 5])


async def test_a_scope_can_be_cleared(knowledge: KnowledgeStore) -> None:
    await knowledge.upsert(ANN, [document("a", "one"), document("b", "two")])
    assert await knowledge.clear(ANN) == 2
    assert await knowledge.documents(ANN) == {}


async def test_tombstones_are_purged(store: Store, knowledge: KnowledgeStore, clock: Clock) -> None:
    await knowledge.delete(ANN, ["a"], version=7)
    clock.tick(days=2)
    await open_observations(store).purge_soft_deleted_before(clock.now)
    assert await knowledge.upsert(ANN, [document("a", "first", 1)]) == 1


class Interrupted:
    """Tables that another process changes right after they were read."""

    def __init__(self, tables: IndexTables, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._tables = tables
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    async def find_documents(
        self, scope: KnowledgeScope, ids: Sequence[str] | None = None
    ) -> dict[str, IndexedDocument]:
        found = await self._tables.find_documents(scope, ids)
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self._tables, name)


@pytest.mark.parametrize("way", ["upsert", "reindex"])
async def test_an_unchanged_document_that_a_late_relay_removes_is_written_again(
    knowledge: KnowledgeIndex, embedder: Embedder, way: str
) -> None:
    await knowledge.upsert(ANN, [document("a", "likes green tea", version=1)])
    tables = Interrupted(knowledge.tables, lambda: knowledge.delete(ANN, ["a"], version=2))
    interrupted = KnowledgeIndex(cast(IndexTables, tables), embedder)
    assert await getattr(interrupted, way)(ANN, [document("a", "likes green tea", version=3)]) == 1
    assert await search(knowledge, "green tea") == ["a"]


FACTS = {"sqlite": 5_000}
"""Number of facts by engine; on the slower ones just more than any page."""


async def test_nothing_of_five_thousand_facts_of_one_subject_is_dropped(
    knowledge: KnowledgeStore,
    observations: ObservationStore,
    relay: KnowledgeStoreOutboxRelay,
    store: Store,
    engine: str,
) -> None:
    facts = FACTS.get(engine, 1_200)
    async with store.transaction() as tx:
        for number in range(facts):
            await observations.save(
                fact(f"number {number} is drawer x{number}", id=str(number)), tx=tx
            )
    async with relay:
        await wait_indexed(store)
    assert len(await observations.find_by_subject("acme", "USER", "ann")) == facts
    assert await verify(observations, knowledge) == []
    for number in (0, 1_000, facts - 1):
        assert (await search(knowledge, f"x{number}"))[0] == str(number)
    assert await observations.delete_workspace("acme") == facts
