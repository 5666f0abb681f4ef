"""Observations, whose changes queue memory events, and the tables of the knowledge index."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import HoldfastError
from holdfast.memory.index import VectorMatches, WordMatches
from holdfast.memory.indexing import Entry, IndexedDocument, is_same
from holdfast.memory.knowledge import DEFAULT_AGENT_NAME, IndexStatus, KnowledgeScope
from holdfast.memory.observation import (
    Observation,
    Subject,
    check_limit,
    check_merge,
    own_conversation,
    subject_key,
)
from holdfast.memory.ranking import search_words
from holdfast.queue.audit import AuditEntry
from holdfast.queue.event import MEMORY, NewEvent
from holdfast.queue.pages import Measure, Page
from holdfast.queue.store import Store, Transaction
from holdfast.store.engine import sqlite_engine
from holdfast.store.memory import wait_settled
from holdfast.store.payload import dump, parse
from holdfast.store.readable import OBSERVATION, observation_of
from holdfast.store.sqlite.access import add_audit, count_unattributed, forget_person, pseudonym
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.put import draw_version, put_observation, put_one
from holdfast.store.sqlite.rows import ANY_ID, MICROSECOND, Row, micros, moment
from holdfast.store.sqlite.writer import Writing

if TYPE_CHECKING:
    from holdfast.store.sqlite.store import SqliteStore

T = TypeVar("T")

SQL = load()
NO_LIMIT = -1
MOMENTS = ("created_at", "updated_at", "deleted_at")
BEFORE_ALL = ("", "", "")
_TOMBSTONE = {"nth": 0, "content": "", "hash": "", "model": "", "deleted": 1, "embedding": None}
TOMBSTONE_AGE = timedelta(days=1)
"""Minimum age to purge tombstones: they stop late writers, and no writer is a day late."""


class SqliteObservationStore:
    """The observations of a SQLite store."""

    def __init__(self, store: Store) -> None:
        if store is None:
            raise ValueError("an observation store needs the store that holds it")
        self.store = store
        self._engine = sqlite_engine(store)

    async def save(self, observation: Observation, *, tx: Transaction | None = None) -> int:
        return await self._write(lambda db: save(db, observation), tx)

    async def delete(
        self, workspace_id: str, id: str, *, tx: Transaction | None = None
    ) -> int | None:
        return await self._write(lambda db: remove(db, workspace_id, id, soft=False), tx)

    async def soft_delete(
        self, workspace_id: str, id: str, *, tx: Transaction | None = None
    ) -> int | None:
        return await self._write(lambda db: remove(db, workspace_id, id, soft=True), tx)

    async def merge(
        self,
        winner: Observation | str,
        loser: Observation | str,
        merged: Observation,
        *,
        tx: Transaction | None = None,
    ) -> int:
        ids = check_merge(winner, loser, merged)
        return await self._write(lambda db: merge(db, *ids, merged), tx)

    async def _write(self, work: Callable[[Writing], T], tx: Transaction | None) -> T:
        result: T = await (self._engine.write(work) if tx is None else tx.run(work))
        return result

    async def find_by_id(self, workspace_id: str, id: str) -> Observation | None:
        observations = await self.find_by_ids(workspace_id, [id])
        return observations[0] if observations else None

    async def find_by_ids(self, workspace_id: str, ids: Sequence[str]) -> list[Observation]:
        return await self._find(
            "observations_by_id", {"workspace_id": workspace_id, "ids": dump(list(ids))}
        )

    async def find_by_subject(
        self, workspace_id: str, subject_type: str, subject_id: str, *, limit: int | None = None
    ) -> list[Observation]:
        subject = _subject_params(workspace_id, subject_type, subject_id)
        return await self._find(
            "observations_by_subject", subject | {"limit": check_limit(limit) or NO_LIMIT}
        )

    async def find_by_confidence_below(
        self, workspace_id: str, confidence: float, *, limit: int = 100
    ) -> list[Observation]:
        wanted = {
            "workspace_id": workspace_id,
            "confidence": confidence,
            "limit": check_limit(limit),
        }
        return await self._find("doubtful_observations", wanted)

    async def _find(self, query: str, params: dict[str, Any]) -> list[Observation]:
        rows = await self._engine.read(
            lambda connection: connection.execute(SQL[query], params).fetchall()
        )
        return [_observation_of(row) for row in rows]

    async def find_subjects(
        self,
        workspace_id: str | None = None,
        *,
        after: tuple[str, str, str] | None = None,
        limit: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Subject]:
        most = check_limit(limit) or ANY_ID
        names = ("after_workspace", "after_type", "after_id")
        params: dict[str, Any] = dict(zip(names, after or BEFORE_ALL, strict=True))
        params |= {"workspace_id": workspace_id, "limit": most}

        def read(connection: Connection) -> Page[tuple[Any, ...]]:
            return Measure(most, most_bytes).page(
                connection.execute(SQL["observation_subjects"], params)
            )

        return (await self._engine.read(read)).map(lambda row: Subject(*row))

    async def count(self, workspace_id: str | None = None) -> int:
        return sum(subject.observations for subject in await self.find_subjects(workspace_id))

    async def purge_soft_deleted_before(self, moment: datetime) -> int:
        params = {"before": micros(moment)}

        def work(db: Writing) -> int:
            oldest = max(params["before"], db.now - TOMBSTONE_AGE // MICROSECOND)
            db.connection.execute(SQL["purge_tombstones"], {"before": oldest})
            return db.connection.execute(SQL["purge_observations"], params).rowcount

        return await self._engine.write(work)

    async def delete_workspace(self, workspace_id: str) -> int:
        params = {"workspace_id": workspace_id}

        def work(db: Writing) -> int:
            ids = db.connection.execute(SQL["observations_of_workspace"], params).fetchall()
            return sum(remove(db, workspace_id, id_, soft=False) is not None for (id_,) in ids)

        return await self._engine.write(work)

    async def wait_indexed(self, position: int, *, within: float = 5.0) -> bool:
        return await wait_settled(self.store, position, within)

    async def has_pending(self, subject_key: str) -> bool:
        params = {"subject_key": subject_key}
        [is_pending] = await self._engine.read(
            lambda connection: connection.execute(SQL["pending_changes"], params).fetchone()
        )
        return bool(is_pending)

    async def requeue_outdated(self, agent_name: str, model: str, *, limit: int = 1000) -> int:
        params = {"agent_name": agent_name, "model": model, "limit": limit}
        return await self._engine.write(lambda db: _index_again(db, params))

    async def forget(
        self, workspace_id: str, subject_type: str, subject_id: str, *, actor: str | None = None
    ) -> dict[str, int]:
        key = subject_key(workspace_id, subject_type, subject_id)
        subject = _subject_params(workspace_id, subject_type, subject_id)
        params = subject | {"subject_key": key, "own_conversation": own_conversation(subject_id)}

        def work(db: Writing) -> dict[str, int]:
            removed = _forget(db, params)
            if actor is not None:
                person = pseudonym(db.connection, key)
                entry = AuditEntry(actor=actor, action="forgot", subject=person, details=removed)
                add_audit(db, entry)
            return removed

        return await self._engine.write(work)


def _subject_params(workspace_id: str, subject_type: str, subject_id: str) -> dict[str, Any]:
    return {
        "workspace_id": workspace_id,
        "subject_type": subject_type.upper(),
        "subject_id": subject_id,
    }


def save(db: Writing, observation: Observation, *, id_: str | None = None) -> int:
    """Insert or replace an observation and queue it for the index. Returns the position."""
    observation = replace(observation, id=id_ or observation.id)
    key = {"workspace_id": observation.workspace_id, "id": observation.id, "deleted": False}
    before = db.connection.execute(SQL["observation_subject_of"], key).fetchone()
    params = put_observation(db, observation)
    if before is not None and before[0] != observation.subject_key:
        _put_change(db, "DELETE", params, before[0])
    return _put_change(db, "UPSERT", params, observation.subject_key)


def save_unless_changed(db: Writing, observation: Observation) -> bool:
    """Save an observation unless its stored version is another by now. Returns whether it did."""
    key = {"workspace_id": observation.workspace_id, "id": observation.id}
    stored = db.connection.execute(SQL["observation_version_of"], key).fetchone()
    if stored is None or stored[0] != observation.version:
        return False
    save(db, observation)
    return True


def merge(db: Writing, winner: str, loser: str, merged: Observation) -> int:
    """Soft-delete the loser and give the winner the merged content. Returns the position."""
    for id_ in (winner, loser):
        _require_subject(db, id_, merged)
    remove(db, merged.workspace_id, loser, soft=True)
    return save(db, merged, id_=winner)


def _require_subject(db: Writing, id_: str, merged: Observation) -> None:
    """Refuse an observation that is not stored, or is about another subject."""
    params = {"workspace_id": merged.workspace_id, "id": id_, "deleted": False}
    stored = db.connection.execute(SQL["observation_subject_of"], params).fetchone()
    if stored is None:
        raise HoldfastError(f"there is no observation {id_!r} in workspace {merged.workspace_id!r}")
    if stored[0] != merged.subject_key:
        raise HoldfastError(f"observation {id_!r} is about {stored[0]}, not {merged.subject_key}")


def remove(db: Writing, workspace_id: str, id_: str, *, soft: bool) -> int | None:
    """Delete an observation. Returns the position of the change, None if there is none."""
    params: dict[str, Any] = {"workspace_id": workspace_id, "id": id_, "now": db.now}
    stored = db.connection.execute(
        SQL["observation_subject_of"], params | {"deleted": not soft}
    ).fetchone()
    if stored is None:
        return None
    params["version"] = draw_version(db)
    db.connection.execute(SQL["soft_delete_observation" if soft else "delete_observation"], params)
    return _put_change(db, "DELETE", params, stored[0])


def _put_change(db: Writing, operation: str, params: dict[str, Any], key: str) -> int:
    """Queue a change for the index. Returns its position."""
    change = {
        "kind": "memory",
        "workspace_id": params["workspace_id"],
        "observation_local_id": params["id"],
        "subject_key": key,
        "operation": operation,
        "version": params["version"],
    }
    position = put_one(db, NewEvent(event=change, queue=MEMORY, lane=key), dump(change))
    db.ready.add(MEMORY)
    assert position is not None, "only events with a message id can be duplicates"
    return position


def _index_again(db: Writing, params: dict[str, Any]) -> int:
    documents = db.connection.execute(SQL["mark_other_models"], params).fetchall()
    for key, id_, version in documents:
        values = {"workspace_id": key.split(":")[0], "id": id_, "version": version}
        _put_change(db, "UPSERT", values, key)
    return len(documents)


def _forget(db: Writing, params: dict[str, Any]) -> dict[str, int]:
    """Delete every trace of a subject. Returns the number of rows of each kind."""
    removed, names = forget_person(db, params)
    removed["observations"] = _forget_observations(db, params | {"names": dump(names)})
    return removed | count_unattributed(db)


def _forget_observations(db: Writing, params: dict[str, Any]) -> int:
    """Delete observations about a subject, and those about others learned only from its messages.

    The latter leave our own index at once, and other indexes through their relays. Returns the
    number of observations."""
    removed = db.connection.execute(SQL["forget_observations"], params).rowcount
    for id_, key in db.connection.execute(SQL["learned_from"], params).fetchall():
        removed += remove(db, params["workspace_id"], id_, soft=False) is not None
        remove_documents(db, KnowledgeScope(DEFAULT_AGENT_NAME, key), [id_], None)
    return removed


def _observation_of(row: Row) -> Observation:
    values = dict(zip(OBSERVATION, row, strict=True))
    values["source_message_ids"] = parse(values["source_message_ids"])
    moments = {name: moment(values[name]) for name in MOMENTS if values[name] is not None}
    return observation_of(values | moments)


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
        return await self._store.write(lambda db: _forget_scope(db, scope))

    async def replace(
        self, scope: KnowledgeScope, written: Sequence[Entry], model: str, until: int
    ) -> set[str]:
        kept = {entry.document.id for entry in written}

        def work(db: Writing) -> set[str]:
            done = _write(db, scope, written, model)
            for id_, stored in _find_documents(db.connection, scope, None).items():
                # A tombstone with the version `until` would also refuse a document that was saved
                # meanwhile with a lower version.
                if id_ not in kept and stored.version <= until:
                    remove_documents(db, scope, [id_], stored.version)
            return done

        return await self._store.write(work)

    async def by_words(self, scope: KnowledgeScope, query: str, limit: int) -> WordMatches:
        words = " OR ".join(f'"{word}"' for word in search_words(query))
        if not words:
            return []
        match = f'scope : "{_scope_word(scope)}" AND content : ({words})'
        params = {"query": match, "limit": limit}
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
    """Return a scope's word in the full-text index, as the trigger knowledge_inserted writes it."""
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
    fresh = [one for one in written if forgotten is None or one.document.version > forgotten]
    fitting = [one for one in fresh if _fits(one, documents.get(one.document.id), model)]
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
    params = _scope_params(scope) | {"document_id": document.id, "now": db.now}
    params["version"] = document.version
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


def _forget_scope(db: Writing, scope: KnowledgeScope) -> int:
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
    best = _best_pieces(rows, vector, limit)
    ids = dump([id_ for id_, _ in best.values()])
    contents = dict(connection.execute(SQL["document_pieces"], {"ids": ids}))
    return [(document_id, contents[id_], likeness) for document_id, (id_, likeness) in best.items()]


def _best_pieces(rows: list[Any], vector: bytes, limit: int) -> dict[str, tuple[int, float]]:
    """Return the id and likeness of the best piece of each document, best first."""
    # Imported here, since a process without memory does not need it.
    import numpy as np

    matrix = np.frombuffer(b"".join(row[2] for row in rows), dtype="<f4").reshape(len(rows), -1)
    likeness = matrix @ np.frombuffer(vector, dtype="<f4")
    best: dict[str, tuple[int, float]] = {}
    for index in np.argsort(-likeness, kind="stable"):
        best.setdefault(rows[index][1], (rows[index][0], float(likeness[index])))
        if len(best) == limit:
            break
    return best
