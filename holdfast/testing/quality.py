"""How well an index finds what is asked for: recall@5 of the fused search beside words alone and vectors alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from holdfast.memory.embedder import mark_of
from holdfast.memory.index import KnowledgeIndex
from holdfast.memory.knowledge import KnowledgeDocument, KnowledgeScope
from holdfast.testing.questions import FACTS, NAMED, PARAPHRASED

SCOPE = KnowledgeScope("testing", "facts")
FIRST = 5
SETS = {
    "paraphrased": PARAPHRASED,
    "with a rare name": NAMED,
    "of both kinds": (*PARAPHRASED, *NAMED),
}

Search = Callable[[str], Awaitable[list[str]]]
"""The ids of what is found for a question, best first."""


@dataclass(frozen=True, slots=True)
class Recall:
    """The share of questions whose answer is among the first five; vectors are None where there are none."""

    fused: float
    words: float
    vectors: float | None

    @property
    def better_alone(self) -> float:
        return max(self.words, self.vectors or 0)


async def fill(index: KnowledgeIndex) -> None:
    await index.upsert(SCOPE, [KnowledgeDocument(id=fact, content=fact) for fact in FACTS])


async def recall(index: KnowledgeIndex, questions: Sequence[tuple[str, str]]) -> Recall:
    """Of an index that was filled."""

    async def fused(question: str) -> list[str]:
        return [hit.id for hit in await index.search(SCOPE, question, FIRST)]

    async def words(question: str) -> list[str]:
        return [id_ for id_, _ in await index.tables.by_words(SCOPE, question, FIRST)]

    async def vectors(question: str) -> list[str]:
        [asked] = index.embedder.embed([question])
        return [
            id_
            for id_, *_ in await index.tables.by_meaning(
                SCOPE, asked, mark_of(index.embedder), FIRST
            )
        ]

    has_vectors = (await index.status()).vectors
    return Recall(
        await _share(fused, questions),
        await _share(words, questions),
        await _share(vectors, questions) if has_vectors else None,
    )


async def _share(search: Search, questions: Sequence[tuple[str, str]]) -> float:
    found = [fact in await search(question) for question, fact in questions]
    return sum(found) / len(found)
