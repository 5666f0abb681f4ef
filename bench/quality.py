"""Quality of memory search: recall@5 of the fused search beside words alone and vectors alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from bench.engine import Engine
from bench.questions import FACTS, NAMED, PARAPHRASED
from bench.row import Goal, Row
from bench.scale import Scale
from holdfast.memory.embedder import model_key
from holdfast.memory.index import KnowledgeIndex
from holdfast.memory.knowledge import KnowledgeDocument, KnowledgeScope
from holdfast.store import open_store
from holdfast.store.memory import open_knowledge

SCOPE = KnowledgeScope("bench", "facts")
FIRST = 5
QUESTIONS = {
    "paraphrased": PARAPHRASED,
    "with a rare name": NAMED,
    "of both kinds": (*PARAPHRASED, *NAMED),
}

Search = Callable[[str], Awaitable[list[str]]]
"""A search for a question. Returns the ids of the documents, best first."""


async def memory_quality(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    with engine.fresh() as url:
        async with open_store(url) as store:
            index = open_knowledge(store)
            await index_facts(index)
            for kind, questions in QUESTIONS.items():
                found = await measure_recall(index, questions)
                yield Row(
                    store=engine.name,
                    what=f"recall@5, {len(questions)} questions {kind}",
                    measured=found.fused * 100,
                    against=f"better of words {found.words:.0%}, vectors {found.vectors or 0:.0%}",
                    beside=found.better_alone * 100,
                    goal=Goal(1.0),
                    unit="%",
                )


@dataclass(frozen=True, slots=True)
class Recall:
    """Share of questions whose answer is among the first five hits.

    `vectors` is None if the engine has no vectors."""

    fused: float
    words: float
    vectors: float | None

    @property
    def better_alone(self) -> float:
        return max(self.words, self.vectors or 0)


async def index_facts(index: KnowledgeIndex) -> None:
    await index.upsert(SCOPE, [KnowledgeDocument(id=fact, content=fact) for fact in FACTS])


async def measure_recall(index: KnowledgeIndex, questions: Sequence[tuple[str, str]]) -> Recall:
    """Ask all questions of an index that holds the facts, in three ways."""

    async def fused(question: str) -> list[str]:
        return [hit.id for hit in await index.search(SCOPE, question, FIRST)]

    async def words(question: str) -> list[str]:
        return [id_ for id_, _ in await index.tables.by_words(SCOPE, question, FIRST)]

    async def vectors(question: str) -> list[str]:
        [asked] = index.embedder.embed([question])
        return [
            id_
            for id_, *_ in await index.tables.by_meaning(
                SCOPE, asked, model_key(index.embedder), FIRST
            )
        ]

    has_vectors = (await index.status()).vectors
    return Recall(
        await _hit_rate(fused, questions),
        await _hit_rate(words, questions),
        await _hit_rate(vectors, questions) if has_vectors else None,
    )


async def _hit_rate(search: Search, questions: Sequence[tuple[str, str]]) -> float:
    found = [fact in await search(question) for question, fact in questions]
    return sum(found) / len(found)
