"""The tables of the knowledge index: FTS5 for words, and vectors compared in numpy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

from holdfast.memory.index import VectorMatches, WordMatches
from holdfast.memory.indexing import Entry, IndexedDocument, is_same
from holdfast.memory.knowledge import IndexStatus, KnowledgeScope
from holdfast.memory.ranking import search_words
from holdfast.store.payload import dump
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.put import draw_version
from holdfast.store.sqlite.writer import Writing

if TYPE_CHECKING:
    from holdfast.store.sqlite.store import SqliteStore

SQL = load()

_TOMBSTONE = {"nth": 0, "content": "", "hash": "", "model": "", "deleted": 1, "embedding": None}


class SqliteKnowledge:
    """The tables of the knowledge index in the file of a SQLite store."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def find_documents(
        self, scope: KnowledgeScope, ids: Sequence[str] | None = None
    ) -> dict[str, IndexedDocument]:
        return await self._store.read(lambda connection: _find_documents(connection, scope, ids))

    async def write(self, scope: KnowledgeScope, written: Sequence[Entry], model: str) -> set[str]:
        return (
            await self._store.write(lambda db: _write(db, scope, written, model))
            if written
            else set()
        )

    async def remove(self, scope: KnowledgeScope, ids: Sequence[str], version: int | None) -> int:
        return await self._store.write(lambda db: remove_documents(db, scope, ids, version))

    async def forget(self, scope: KnowledgeScope) -> int:
        return await self._store.write(lambda db: _forget(db, scope))

    async def replace(
        self, scope: KnowledgeScope, written: Sequence[Entry], model: str, until: int
    ) -> set[str]:
        kept = {entry.document.id for entry in written}

        def work(db: Writing) -> set[str]:
            done = _write(db, scope, written, model)
            for id_, stored in _find_documents(db.connection, scope, None).items():
                # Each by its own version: one saved meanwhile may be older than the newest other.
                if id_ not in kept and stored.version <= until:
                    remove_documents(db, scope, [id_], stored.version)
            return done

        return await self._store.write(work)

    async def by_words(self, scope: KnowledgeScope, query: str, limit: int) -> WordMatches:
        words = " OR ".join(f'"{word}"' for word in search_words(query))
        if not words:
            return []
        params = {
            "query": f'scope : "{_scope_word(scope)}" AND content : ({words})',
            "limit": limit,
        }
        rows = await self._store.read(
            lambda connection: connection.execute(SQL["documents_by_words"], params).fetchall()
        )
        best: dict[str, str] = {}
        for id_, content in rows:
            best.setdefault(id_, content)
        return list(best.items())

    async def has_vectors(self) -> bool:
        return True

    async def by_meaning(
        self, scope: KnowledgeScope, vector: bytes, model: str, limit: int
    ) -> VectorMatches:
        return await self._store.read(
            lambda connection: _find_nearest(connection, scope, vector, model, limit)
        )

    async def status(self, model: str, dimensions: int) -> IndexStatus:
        params = {"model": f"{model}/{dimensions}"}
        rows = await self._store.read(
            lambda connection: connection.execute(SQL["knowledge_status"], params).fetchall()
        )
        return IndexStatus(
            documents=sum(row[2] for row in rows),
            model=model,
            dimensions=dimensions,
            other_model=sum(row[3] for row in rows),
            scopes=tuple(KnowledgeScope(row[0], row[1]) for row in rows),
        )


def _scope_params(scope: KnowledgeScope) -> dict[str, Any]:
    return {"agent_name": scope.agent_name, "context_id": scope.context_id}


def _scope_word(scope: KnowledgeScope) -> str:
    """Return the word of a scope in the full text, as the trigger knowledge_inserted writes it."""
    return "s" + f"{scope.agent_name}\n{scope.context_id}".encode().hex().upper()


def _find_documents(
    connection: Connection, scope: KnowledgeScope, ids: Sequence[str] | None
) -> dict[str, IndexedDocument]:
    params = _scope_params(scope) | {"ids": dump(list(ids or ()))}
    query = "live_documents" if ids is None else "documents_by_id"
    return {
        id_: IndexedDocument(hash_, model, version, bool(deleted))
        for id_, hash_, model, version, deleted in connection.execute(SQL[query], params)
    }


def _write(db: Writing, scope: KnowledgeScope, written: Sequence[Entry], model: str) -> set[str]:
    documents = _find_documents(db.connection, scope, [entry.document.id for entry in written])
    forgotten = _read_forgotten_version(db.connection, scope)
    late = {
        entry.document.id
        for entry in written
        if forgotten is not None and entry.document.version <= forgotten
    }
    fitting = [
        entry
        for entry in written
        if entry.document.id not in late and _fits(entry, documents.get(entry.document.id), model)
    ]
    for entry in fitting:
        _write_entry(db, scope, entry, model)
    return {entry.document.id for entry in fitting}


def _fits(entry: Entry, stored: IndexedDocument | None, model: str) -> bool:
    """Return whether to write an entry: not if it is older than the stored one.

    An entry without pieces only moves the version, so its content must be the stored one."""
    if stored is not None and stored.version > entry.document.version:
        return False
    return entry.pieces is not None or is_same(entry.document, stored, model)


def _write_entry(db: Writing, scope: KnowledgeScope, entry: Entry, model: str) -> None:
    document = entry.document
    params = _scope_params(scope) | {
        "document_id": document.id,
        "version": document.version,
        "now": db.now,
    }
    if entry.pieces is None:
        db.connection.execute(SQL["move_document_version"], params)
        return
    db.connection.execute(SQL["delete_pieces"], params)
    params |= {"hash": document.hash, "model": model, "deleted": 0}
    for nth, piece in enumerate(entry.pieces):
        row = params | {"nth": nth, "content": piece.content, "embedding": piece.embedding}
        db.connection.execute(SQL["put_piece"], row)


def remove_documents(
    db: Writing, scope: KnowledgeScope, ids: Sequence[str], version: int | None
) -> int:
    """Delete documents and leave tombstones, so that late writers cannot restore old versions.

    Returns the number of documents that were live."""
    documents = _find_documents(db.connection, scope, ids)
    is_forgotten = _read_forgotten_version(db.connection, scope) is not None
    removed = 0
    for id_ in ids:
        stored = documents.get(id_)
        if stored is not None and version is not None and stored.version > version:
            continue
        removed += stored is not None and not stored.deleted
        params = _scope_params(scope) | {"document_id": id_, "now": db.now}
        db.connection.execute(SQL["delete_pieces"], params)
        if not is_forgotten:
            newest = max(version or 0, stored.version if stored else 0)
            db.connection.execute(SQL["put_piece"], params | _TOMBSTONE | {"version": newest})
    return removed


def _tombstone_params(scope: KnowledgeScope) -> dict[str, Any]:
    """Return the key of a scope's tombstone. It holds a hash, as the name must be gone."""
    hashed = hashlib.md5(scope.context_id.encode(), usedforsecurity=False).hexdigest()
    return {"agent_name": scope.agent_name, "context_id": hashed, "document_id": ""}


def _read_forgotten_version(connection: Connection, scope: KnowledgeScope) -> int | None:
    """Return the version up to which a scope was forgotten, None if it never was."""
    row = connection.execute(SQL["forgotten_version"], _tombstone_params(scope)).fetchone()
    return None if row is None else int(row[0])


def _forget(db: Writing, scope: KnowledgeScope) -> int:
    """Delete the scope and leave a hashed tombstone so that late writers cannot restore it.

    Returns the number of documents."""
    live = _find_documents(db.connection, scope, None)
    db.connection.execute(SQL["delete_scope"], _scope_params(scope))
    db.connection.execute(SQL["delete_pieces"], _tombstone_params(scope))
    params = _tombstone_params(scope) | _TOMBSTONE | {"version": draw_version(db), "now": db.now}
    db.connection.execute(SQL["put_piece"], params)
    return len(live)


def _find_nearest(
    connection: Connection, scope: KnowledgeScope, vector: bytes, model: str, limit: int
) -> VectorMatches:
    rows = connection.execute(
        SQL["document_vectors"], _scope_params(scope) | {"model": model}
    ).fetchall()
    if not rows:
        return []
    # Imported here, since a process without memory does not need it.
    import numpy as np

    matrix = np.frombuffer(b"".join(row[2] for row in rows), dtype="<f4").reshape(len(rows), -1)
    likeness = matrix @ np.frombuffer(vector, dtype="<f4")
    best: dict[str, tuple[int, float]] = {}
    for index in np.argsort(-likeness, kind="stable"):
        best.setdefault(rows[index][1], (rows[index][0], float(likeness[index])))
        if len(best) == limit:
            break
    ids = dump([id_ for id_, _ in best.values()])
    contents = dict(connection.execute(SQL["document_pieces"], {"ids": ids}))
    return [(document_id, contents[id_], likeness) for document_id, (id_, likeness) in best.items()]
