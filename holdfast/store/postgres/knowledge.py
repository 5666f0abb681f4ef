"""The knowledge index in PostgreSQL: full text, and pgvector where it is installed."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from holdfast.memory.index import VectorMatches, WordMatches
from holdfast.memory.indexing import Entry, IndexedDocument
from holdfast.memory.knowledge import IndexStatus, KnowledgeScope
from holdfast.store.payload import dump
from holdfast.store.postgres.store import PostgresStore

_PUT = "select agent.put_documents(%s, %s, %s, %s)"
_FORGET = "select agent.forget_documents(%s, %s)"
_REMOVE = "select agent.remove_documents(%s, %s, %s, %s, %s)"


class PostgresKnowledge:
    """The index's tables beside the events of a PostgreSQL store."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._has_vectors: bool | None = None

    async def find_documents(
        self, scope: KnowledgeScope, ids: Sequence[str] | None = None
    ) -> dict[str, IndexedDocument]:
        key: list[str | list[str]] = [scope.agent_name, scope.context_id]
        source = "agent.known_documents(%s, %s, %s)"
        if ids is None:
            source = "agent.knowledge where agent_name = %s and context_id = %s and nth = 0"
            source += " and not deleted"
        rows = await self._store.connections.rows(
            f"select document_id, hash, model, version, deleted from {source}",
            key if ids is None else [*key, list(ids)],
        )
        return {row[0]: IndexedDocument(*row[1:]) for row in rows}

    async def write(self, scope: KnowledgeScope, written: Sequence[Entry], model: str) -> set[str]:
        if not written:
            return set()
        arguments = (
            scope.agent_name,
            scope.context_id,
            model,
            dump([_row(entry) for entry in written]),
        )
        return set(await self._store.connections.value(_PUT, arguments))

    async def remove(self, scope: KnowledgeScope, ids: Sequence[str], version: int | None) -> int:
        arguments: tuple[object, ...] = (scope.agent_name, scope.context_id, list(ids), version, [])
        return int(await self._store.connections.value(_REMOVE, arguments))

    async def forget(self, scope: KnowledgeScope) -> int:
        return int(
            await self._store.connections.value(_FORGET, (scope.agent_name, scope.context_id))
        )

    async def replace(
        self, scope: KnowledgeScope, written: Sequence[Entry], model: str, until: int
    ) -> set[str]:
        rows = dump([_row(entry) for entry in written])
        kept = [entry.document.id for entry in written]
        async with self._store.transaction() as tx:
            cursor = await tx.execute(_PUT, (scope.agent_name, scope.context_id, model, rows))
            [ids] = await cursor.fetchone()
            await tx.execute(_REMOVE, (scope.agent_name, scope.context_id, None, until, kept))
        return set(ids)

    async def by_words(self, scope: KnowledgeScope, query: str, limit: int) -> WordMatches:
        rows = await self._store.connections.rows(
            "select document_id, content from agent.found_by_words(%s, %s, %s, %s)",
            (scope.agent_name, scope.context_id, query, limit),
        )
        return [(id_, content) for id_, content in rows]

    async def by_meaning(
        self, scope: KnowledgeScope, vector: bytes, model: str, limit: int
    ) -> VectorMatches:
        rows = await self._store.connections.rows(
            "select document_id, content, likeness from agent.found_by_meaning(%s, %s, %s, %s, %s)",
            (scope.agent_name, scope.context_id, model, f"[{_numbers(vector)}]", limit),
        )
        return [(id_, content, likeness) for id_, content, likeness in rows]

    async def has_vectors(self) -> bool:
        if not self._has_vectors:
            self._has_vectors = bool(
                await self._store.connections.value("select agent.has_vectors()")
            )
        return self._has_vectors

    async def status(self, model: str, dimensions: int) -> IndexStatus:
        rows = await self._store.connections.rows(
            "select agent_name, context_id, count(*), count(*) filter (where model <> %s)"
            " from agent.knowledge where nth = 0 and not deleted"
            " group by agent_name, context_id order by agent_name, context_id",
            (f"{model}/{dimensions}",),
        )
        return IndexStatus(
            documents=sum(row[2] for row in rows),
            model=model,
            dimensions=dimensions,
            other_model=sum(row[3] for row in rows),
            vectors=await self.has_vectors(),
            scopes=tuple(KnowledgeScope(row[0], row[1]) for row in rows),
        )


def _row(entry: Entry) -> dict[str, object]:
    document = entry.document
    row: dict[str, object] = {"id": document.id, "hash": document.hash, "version": document.version}
    if entry.pieces is not None:
        row["pieces"] = [
            {"content": piece.content, "embedding": f"{{{_numbers(piece.embedding)}}}"}
            for piece in entry.pieces
        ]
    return row


def _numbers(vector: bytes) -> str:
    return ",".join(f"{number:.7g}" for number in array("f", vector))
