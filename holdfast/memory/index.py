"""A knowledge store over the tables of an engine: what is written, and how two searches become one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.memory.embedder import Embedder, LocalEmbedder, WordsOnly, model_key
from holdfast.memory.indexing import Entry, IndexedDocument, entries
from holdfast.memory.knowledge import (
    DEFAULT_OPTIONS,
    Hit,
    IndexOptions,
    IndexStatus,
    IndexUnavailable,
    KnowledgeDocument,
    KnowledgeScope,
    KnowledgeSource,
    storable_text,
)
from holdfast.memory.ranking import CANDIDATES, fused

T = TypeVar("T")

WordMatches = list[tuple[str, str]]
"""Documents, best first: id, and the piece that was found."""
VectorMatches = list[tuple[str, str, float]]
"""The same, with how like its vector is to the one asked for: 1 is the same."""


class IndexTables(Protocol):
    """What an engine does for an index; each call is one transaction."""

    async def find_documents(
        self, scope: KnowledgeScope, ids: Sequence[str] | None = None
    ) -> dict[str, IndexedDocument]:
        """What is there of these, or of all; stones of deleted ones too where ids are named."""

    async def write(self, scope: KnowledgeScope, written: Sequence[Entry], model: str) -> set[str]:
        """Write entries, none over a newer version, and none without pieces over another content; which ones."""

    async def remove(self, scope: KnowledgeScope, ids: Sequence[str], version: int | None) -> int:
        """Remove documents, but none that is newer; how many."""

    async def forget(self, scope: KnowledgeScope) -> int:
        """Remove all of the scope, its name too, and for whoever writes later what he read before; how many."""

    async def replace(
        self, scope: KnowledgeScope, written: Sequence[Entry], model: str, until: int
    ) -> set[str]:
        """Write these and remove the others up to a version, at once; which ones are written."""

    async def by_words(self, scope: KnowledgeScope, query: str, limit: int) -> WordMatches:
        """By full text."""

    async def has_vectors(self) -> bool:
        """Whether the engine can compare vectors."""

    async def by_meaning(
        self, scope: KnowledgeScope, vector: bytes, model: str, limit: int
    ) -> VectorMatches:
        """By vectors of this model."""

    async def status(self, model: str, dimensions: int) -> IndexStatus:
        """What is there, and how much of it by another model."""


_WORDS_ONLY = WordsOnly()


class KnowledgeIndex:
    """A KnowledgeStore in the database of a store."""

    def __init__(self, tables: IndexTables, embedder: Embedder | None = None) -> None:
        self.tables = tables
        self.embedder = embedder or LocalEmbedder()

    async def upsert(self, scope: KnowledgeScope, documents: KnowledgeSource) -> int:
        wanted, count = list(documents), 0
        with _reachable():
            using = await self.using()
            while wanted:
                known = await self.tables.find_documents(
                    scope, [document.id for document in wanted]
                )
                made = await asyncio.to_thread(entries, wanted, known, using)
                written = await self.tables.write(scope, made, model_key(using))
                count += len(written)
                wanted = _overtaken(made, written)
        return count

    async def using(self) -> Embedder:
        """The embedder, where the engine has a use for it."""
        return self.embedder if await self.tables.has_vectors() else _WORDS_ONLY

    async def delete(
        self, scope: KnowledgeScope, ids: Iterable[str], *, version: int | None = None
    ) -> int:
        with _reachable():
            return await self.tables.remove(scope, sorted(ids), version)

    async def clear(self, scope: KnowledgeScope) -> int:
        with _reachable():
            return await self.tables.forget(scope)

    async def reindex(
        self,
        scope: KnowledgeScope,
        source: KnowledgeSource,
        options: IndexOptions = DEFAULT_OPTIONS,
    ) -> int:
        with _reachable():
            using = await self.using()
            known = await self.tables.find_documents(scope)
            # What comes while we read is newer than all of this, and stays.
            until = max((there.version for there in known.values()), default=0)
            made: list[Entry] = []
            for documents in _batches(source, options.batch_size):
                made += await asyncio.to_thread(entries, documents, known, using)
                until = max(until, *(document.version for document in documents))
                if options.on_progress is not None:
                    options.on_progress(len(made))
            written = await self.tables.replace(scope, made, model_key(using), until)
        await self.upsert(scope, _overtaken(made, written))
        return len(made)

    async def search(
        self, scope: KnowledgeScope, query: str, max_results: int = 5, min_score: float = 0
    ) -> list[Hit]:
        query = storable_text(query)
        if not query.strip() or max_results < 1:
            return []
        with _reachable():
            using, limit = await self.using(), max(CANDIDATES, max_results)
            near: VectorMatches = []
            if using is not _WORDS_ONLY:
                [vector] = await asyncio.to_thread(using.embed, [query])
                near = await self.tables.by_meaning(scope, vector, model_key(using), limit)
            worded = await self.tables.by_words(scope, query, limit)
        return [hit for hit in fused(query, near, worded) if hit.score >= min_score][:max_results]

    async def documents(self, scope: KnowledgeScope) -> dict[str, str]:
        with _reachable():
            return {
                id_: there.hash for id_, there in (await self.tables.find_documents(scope)).items()
            }

    async def status(self) -> IndexStatus:
        with _reachable():
            using = await self.using()
            return await self.tables.status(using.model, using.dimensions)

    async def close(self) -> None:
        """The store that holds the tables is its owner's to close."""


class _reachable:  # noqa: N801 - reads as a condition
    """The database away is the index away."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoreUnavailable):
            raise IndexUnavailable(str(error)) from error


def _overtaken(made: Sequence[Entry], written: set[str]) -> list[KnowledgeDocument]:
    """Those that seemed to be there already, until a relay that had lost its lease removed or changed them."""
    return [
        entry.document
        for entry in made
        if entry.pieces is None and entry.document.id not in written
    ]


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
