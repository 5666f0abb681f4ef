"""A knowledge store in the database of a store, over tables that its engine implements."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.memory.embedder import Embedder, LocalEmbedder, WordsOnly, model_key
from holdfast.memory.indexing import Entry, IndexedDocument, build_entries
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
from holdfast.memory.ranking import CANDIDATES, fuse

T = TypeVar("T")

WordMatches = list[tuple[str, str]]
"""Matches of a full-text search, best first: document id and matching piece."""
VectorMatches = list[tuple[str, str, float]]
"""Matches of a vector search, best first: document id, piece, and similarity (1 is equal)."""


class IndexTables(Protocol):
    """Tables of an index, implemented by each engine. Each call is one transaction."""

    async def find_documents(
        self, scope: KnowledgeScope, ids: Sequence[str] | None = None
    ) -> dict[str, IndexedDocument]:
        """Return the state of documents, by id; of all in the scope without `ids`.

        With `ids`, tombstones of deleted documents are included."""

    async def write(self, scope: KnowledgeScope, entries: Sequence[Entry], model: str) -> set[str]:
        """Write entries, except over newer versions. Returns the ids that were written.

        An entry without pieces is written only if the content is still the same."""

    async def remove(self, scope: KnowledgeScope, ids: Sequence[str], version: int | None) -> int:
        """Remove documents, except newer ones, and leave tombstones. Returns their number."""

    async def forget(self, scope: KnowledgeScope) -> int:
        """Delete the scope and leave a hashed tombstone, so that late writers cannot restore it.

        Returns the number of documents."""

    async def replace(
        self, scope: KnowledgeScope, entries: Sequence[Entry], model: str, until: int
    ) -> set[str]:
        """Write entries and remove all others up to version `until`, in one transaction.

        Returns the ids that were written."""

    async def by_words(self, scope: KnowledgeScope, query: str, limit: int) -> WordMatches:
        """Search by full text."""

    async def has_vectors(self) -> bool:
        """Return whether the engine can compare vectors."""

    async def by_meaning(
        self, scope: KnowledgeScope, vector: bytes, model: str, limit: int
    ) -> VectorMatches:
        """Search by vectors of this model."""

    async def status(self, model: str, dimensions: int) -> IndexStatus:
        """Return the contents of the index, and how many documents are by another model."""


_WORDS_ONLY = WordsOnly()


class KnowledgeIndex:
    """A KnowledgeStore in the database of a store, which stays open when this is closed."""

    def __init__(self, tables: IndexTables, embedder: Embedder | None = None) -> None:
        self.tables = tables
        self.embedder = embedder or LocalEmbedder()

    async def upsert(self, scope: KnowledgeScope, documents: KnowledgeSource) -> int:
        pending, count = list(documents), 0
        with _translate_errors():
            embedder = await self.active_embedder()
            while pending:
                ids = [document.id for document in pending]
                indexed = await self.tables.find_documents(scope, ids)
                entries = await asyncio.to_thread(build_entries, pending, indexed, embedder)
                written = await self.tables.write(scope, entries, model_key(embedder))
                count += len(written)
                pending = _find_overtaken(entries, written)
        return count

    async def active_embedder(self) -> Embedder:
        """Return the embedder, or one without vectors if the engine cannot compare them."""
        return self.embedder if await self.tables.has_vectors() else _WORDS_ONLY

    async def delete(
        self, scope: KnowledgeScope, ids: Iterable[str], *, version: int | None = None
    ) -> int:
        with _translate_errors():
            return await self.tables.remove(scope, sorted(ids), version)

    async def clear(self, scope: KnowledgeScope) -> int:
        with _translate_errors():
            return await self.tables.forget(scope)

    async def reindex(
        self,
        scope: KnowledgeScope,
        source: KnowledgeSource,
        options: IndexOptions = DEFAULT_OPTIONS,
    ) -> int:
        with _translate_errors():
            embedder = await self.active_embedder()
            indexed = await self.tables.find_documents(scope)
            # Documents that are written meanwhile have newer versions, and stay.
            until = max((document.version for document in indexed.values()), default=0)
            entries: list[Entry] = []
            for documents in _batches(source, options.batch_size):
                entries += await asyncio.to_thread(build_entries, documents, indexed, embedder)
                until = max(until, *(document.version for document in documents))
                if options.on_progress is not None:
                    options.on_progress(len(entries))
            written = await self.tables.replace(scope, entries, model_key(embedder), until)
        await self.upsert(scope, _find_overtaken(entries, written))
        return len(entries)

    async def search(
        self, scope: KnowledgeScope, query: str, max_results: int = 5, min_score: float = 0
    ) -> list[Hit]:
        query = storable_text(query)
        if not query.strip() or max_results < 1:
            return []
        with _translate_errors():
            limit = max(CANDIDATES, max_results)
            by_meaning = await self._by_meaning(scope, query, limit)
            by_words = await self.tables.by_words(scope, query, limit)
        hits = fuse(query, by_meaning, by_words)
        return [hit for hit in hits if hit.score >= min_score][:max_results]

    async def _by_meaning(self, scope: KnowledgeScope, query: str, limit: int) -> VectorMatches:
        embedder = await self.active_embedder()
        if embedder is _WORDS_ONLY:
            return []
        [vector] = await asyncio.to_thread(embedder.embed, [query])
        return await self.tables.by_meaning(scope, vector, model_key(embedder), limit)

    async def documents(self, scope: KnowledgeScope) -> dict[str, str]:
        with _translate_errors():
            indexed = await self.tables.find_documents(scope)
            return {id_: document.hash for id_, document in indexed.items()}

    async def status(self) -> IndexStatus:
        with _translate_errors():
            embedder = await self.active_embedder()
            return await self.tables.status(embedder.model, embedder.dimensions)

    async def close(self) -> None:
        """Do nothing: the tables belong to the store."""


class _translate_errors:  # noqa: N801 - reads as a verb
    """Raise IndexUnavailable if the database is unavailable."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoreUnavailable):
            raise IndexUnavailable(str(error)) from error


def _find_overtaken(entries: Sequence[Entry], written: set[str]) -> list[KnowledgeDocument]:
    """Return documents whose index rows were removed or changed after we read them.

    A relay that has lost its lease can do that. These documents have to be embedded after all."""
    return [
        entry.document
        for entry in entries
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
