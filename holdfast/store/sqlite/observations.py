"""Observations; every change writes its memory event in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from sqlite3 import Connection
from typing import Any, TypeVar

from holdfast.errors import HoldfastError
from holdfast.memory.knowledge import DEFAULT_AGENT_NAME, KnowledgeScope
from holdfast.memory.observation import (
    Observation,
    Subject,
    check_limit,
    check_merge,
    own_conversation,
    subject_key,
)
from holdfast.queue.audit import AuditEntry
from holdfast.queue.event import MEMORY, NewEvent
from holdfast.queue.pages import Measure, Page
from holdfast.queue.store import Store, Transaction
from holdfast.store.activity import FORGOTTEN
from holdfast.store.engine import sqlite_engine
from holdfast.store.memory import wait_settled
from holdfast.store.payload import dump, parse
from holdfast.store.readable import observation_type_of, texts_of
from holdfast.store.sqlite.access import add_audit, pseudonym
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.knowledge import remove_documents
from holdfast.store.sqlite.put import draw_version, put_observation, put_one
from holdfast.store.sqlite.rows import ANY_ID, MICROSECOND, micros, moment
from holdfast.store.sqlite.writer import Writing

T = TypeVar("T")

SQL = load()
NO_LIMIT = -1
BEFORE_ALL = ("", "", "")
TOMBSTONE_AGE = timedelta(days=1)
"""Least age of tombstones: they hold off late writers, and none is a day late."""


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
        subject = {
            "workspace_id": workspace_id,
            "subject_type": subject_type.upper(),
            "subject_id": subject_id,
        }
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
        subject = {
            "workspace_id": workspace_id,
            "subject_type": subject_type.upper(),
            "subject_id": subject_id,
        }
        subject["own_conversation"] = own_conversation(subject_id)

        def work(db: Writing) -> dict[str, int]:
            removed = _forget(db, subject, key)
            if actor is not None:
                person = pseudonym(db.connection, key)
                add_audit(
                    db, AuditEntry(actor=actor, action="forgot", subject=person, details=removed)
                )
            return removed

        return await self._engine.write(work)


def save(db: Writing, observation: Observation, *, id_: str | None = None) -> int:
    """Insert or replace an observation and queue it for the index. Returns the position."""
    observation = replace(observation, id=id_ or observation.id)
    key = {"workspace_id": observation.workspace_id, "id": observation.id, "deleted": False}
    before = db.connection.execute(SQL["observation_subject_of"], key).fetchone()
    params = put_observation(db, observation)
    if before is not None and before[0] != observation.subject_key:
        _put_change(db, "DELETE", params, before[0])
    return _put_change(db, "UPSERT", params, observation.subject_key)


def merge(db: Writing, winner: str, loser: str, merged: Observation) -> int:
    """Soft-delete the loser and give the winner the merged content. Returns the position."""
    for id_ in (winner, loser):
        params = {"workspace_id": merged.workspace_id, "id": id_, "deleted": False}
        stored = db.connection.execute(SQL["observation_subject_of"], params).fetchone()
        if stored is None:
            raise HoldfastError(
                f"there is no observation {id_!r} in workspace {merged.workspace_id!r}"
            )
        if stored[0] != merged.subject_key:
            raise HoldfastError(
                f"observation {id_!r} is about {stored[0]}, not {merged.subject_key}"
            )
    remove(db, merged.workspace_id, loser, soft=True)
    return save(db, merged, id_=winner)


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
    new = NewEvent(event=change, queue=MEMORY, lane=key)
    position = put_one(db, new, dump(change))
    db.ready.add(MEMORY)
    assert position is not None, "only events with a message id can be duplicates"
    return position


def _index_again(db: Writing, params: dict[str, Any]) -> int:
    documents = db.connection.execute(SQL["mark_other_models"], params).fetchall()
    for key, id_, version in documents:
        values = {"workspace_id": key.split(":")[0], "id": id_, "version": version}
        _put_change(db, "UPSERT", values, key)
    return len(documents)


def _forget(db: Writing, subject: dict[str, Any], key: str) -> dict[str, int]:
    """Delete every trace of a subject. Returns the number of rows of each kind."""
    params = subject | {"subject_key": key}
    [event_ids] = db.connection.execute(SQL["events_of_person"], params).fetchone()
    params["event_ids"] = event_ids
    events = db.connection.execute(SQL["forget_events"], params).fetchall()
    history = db.connection.execute(SQL["forget_history"], params).fetchall()
    names = [name for name, _ in (*events, *history)]
    params |= {
        "names": dump(names),
        "lines": dump([line for _, line in (*events, *history) if line is not None]),
    }
    messages = db.connection.execute(SQL["forget_agent_messages"], params).fetchall()
    params["names"] = dump([*names, *(name for (name,) in messages)])
    removed = {
        "events": len(events),
        "history": len(history),
        "agent_messages": len(messages),
        "chat_messages": db.connection.execute(SQL["forget_chat_messages"], params).rowcount,
        "activity": db.connection.execute(SQL["forget_frames"], params).rowcount,
        "settings": db.connection.execute(SQL["forget_choices"], params).rowcount,
        "observations": _forget_observations(db, params),
    }
    if removed["activity"]:
        # Makes readers drop their cached frames.
        db.frames.append([{"type": FORGOTTEN}])
    return removed | _count_unattributed(db)


def _forget_observations(db: Writing, params: dict[str, Any]) -> int:
    """Delete observations about a subject, and those about others learned only from its messages.

    The latter leave our own index at once, and other indexes by their relays. Returns how many."""
    removed = db.connection.execute(SQL["forget_observations"], params).rowcount
    for id_, key in db.connection.execute(SQL["learned_from"], params).fetchall():
        removed += remove(db, params["workspace_id"], id_, soft=False) is not None
        remove_documents(db, KnowledgeScope(DEFAULT_AGENT_NAME, key), [id_], None)
    return removed


def _count_unattributed(db: Writing) -> dict[str, int]:
    """Count rows of earlier releases that name no person; forgetting may have missed some.

    Counts of zero are left out."""
    names = ("unattributed_agent_messages", "unattributed_chat_messages", "unattributed_activity")
    counts = db.connection.execute(SQL["count_unattributed"]).fetchone()
    return {name: count for name, count in zip(names, counts, strict=True) if count}


def _observation_of(row: tuple[Any, ...]) -> Observation:
    (
        workspace,
        id_,
        subject_type,
        subject_id,
        observer,
        kind,
        content,
        sources,
        version,
        *moments,
    ) = row
    created_at, updated_at, deleted_at = (
        None if value is None else moment(value) for value in moments
    )
    return Observation(
        workspace_id=workspace,
        id=id_,
        subject_type=subject_type,
        subject_id=subject_id,
        observer=observer,
        type=observation_type_of(kind),
        content=content,
        source_message_ids=texts_of(parse(sources)),
        version=version,
        created_at=created_at,
        updated_at=updated_at,
        deleted_at=deleted_at,
    )
