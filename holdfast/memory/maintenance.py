"""Upkeep of memory: whether the index holds what the observations say, how to make it so, and how to forget."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.memory.embedder import mark_of
from holdfast.memory.index import KnowledgeIndex
from holdfast.memory.knowledge import IndexOptions, IndexStatus, KnowledgeScope, KnowledgeStore
from holdfast.memory.observation import USER, document_of, former_key, parts_of, subject_key
from holdfast.queue.event import MEMORY
from holdfast.queue.store import Store
from holdfast.store import files as stored_files
from holdfast.store.memories import DEFAULT_AGENT_NAME, ObservationStore, open_knowledge
from holdfast.store.people import People, open_people
from holdfast.telemetry import MODEL_CHANGED, SWEPT
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

UNATTRIBUTED = "unattributed_"
"""Begins the names of counts of what names no person."""
INDEX = "index"
"""The setting that says by which model the index is made."""


@dataclass(slots=True)
class Upkeep:
    """What the sweeps of a process do for memory; without a knowledge index it only purges."""

    observations: ObservationStore
    knowledge: KnowledgeIndex | None
    keep_deleted: timedelta = timedelta(days=30)
    _announced: str | None = None

    async def sweep(self) -> None:
        store = self.observations.store
        before = await store.now() - self.keep_deleted
        SWEPT.add(MEMORY, "purged", by=await self.observations.purge_soft_deleted_before(before))
        if self.knowledge is not None:
            await self.follow_model(self.knowledge)

    async def follow_model(self, knowledge: KnowledgeIndex) -> int:
        """What another model than ours indexed goes to the relays again; how many changes were put.

        The process that came last says which model it is. Relays of others may still index by an older one: what they
        did is found by the next sweep."""
        using, store = await knowledge.using(), self.observations.store
        record, mark = {"model": using.model, "dimensions": using.dimensions}, mark_of(using)
        recorded = await store.setting(INDEX)
        if mark != self._announced and recorded != record:
            await store.set_setting(INDEX, record)
        elif recorded != record:
            return 0
        self._announced, told = mark, 0
        while count := await self.observations.tell_again(DEFAULT_AGENT_NAME, mark):
            told += count
        if told:
            log.warning(
                Entry(MODEL_CHANGED, model=using.model, dimensions=using.dimensions, documents=told)
            )
        return told


async def progress(store: Store) -> IndexStatus | None:
    """How much is indexed by the recorded model; None before anybody said which that is."""
    recorded = await store.setting(INDEX)
    if recorded is None:
        return None
    status = await open_knowledge(store).tables.status(recorded["model"], recorded["dimensions"])
    return replace(status, scopes=())


@dataclass(frozen=True, slots=True)
class Difference:
    """A document that is missing in the index, is there without being known, or has another content."""

    subject_key: str
    id: str
    what: str


async def verify(observations: ObservationStore, knowledge: KnowledgeStore) -> list[Difference]:
    """All differences between the observations and their index."""
    found: list[Difference] = []
    keys = set()
    for subject in await observations.find_subjects():
        keys.add(subject.key)
        known = await observations.find_by_subject(subject.workspace_id, subject.type, subject.id)
        wanted = {observation.id: document_of(observation).hash for observation in known}
        found += await _compared(knowledge, subject.key, wanted)
    for scope in (await knowledge.status()).scopes:
        if scope.agent_name == DEFAULT_AGENT_NAME and scope.context_id not in keys:
            found += await _compared(knowledge, scope.context_id, {})
    return found


async def _compared(
    knowledge: KnowledgeStore, key: str, wanted: dict[str, str]
) -> list[Difference]:
    there = await knowledge.documents(KnowledgeScope(DEFAULT_AGENT_NAME, key))
    missing = [Difference(key, id_, "missing") for id_ in wanted.keys() - there.keys()]
    unknown = [Difference(key, id_, "unknown") for id_ in there.keys() - wanted.keys()]
    other = [
        Difference(key, id_, "other content")
        for id_ in wanted.keys() & there.keys()
        if wanted[id_] != there[id_]
    ]
    return sorted(missing + unknown + other, key=lambda difference: difference.id)


async def reindex(
    observations: ObservationStore,
    knowledge: KnowledgeStore,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Make the index hold what the observations say, subject by subject, searchable throughout; how many."""
    keys = [subject.key for subject in await observations.find_subjects()]
    scopes = (await knowledge.status()).scopes
    keys += [scope.context_id for scope in scopes if scope.agent_name == DEFAULT_AGENT_NAME]
    done = 0
    for key in dict.fromkeys(keys):
        done += await _reindex_subject(
            observations, knowledge, key, _counting_on(done, on_progress)
        )
    return done


def _counting_on(before: int, on_progress: Callable[[int], None] | None) -> IndexOptions:
    if on_progress is None:
        return IndexOptions()
    return IndexOptions(on_progress=lambda count: on_progress(before + count))


async def _reindex_subject(
    observations: ObservationStore, knowledge: KnowledgeStore, key: str, options: IndexOptions
) -> int:
    scope = KnowledgeScope(DEFAULT_AGENT_NAME, key)
    workspace_id, subject_type, subject_id = key.split(":", 2)
    known = await observations.find_by_subject(workspace_id, subject_type, subject_id)
    done = await knowledge.reindex(
        scope, [document_of(observation) for observation in known], options
    )
    # What a relay indexed since we read them was not among these, and went with what is no more.
    read = {observation.version for observation in known}
    current = await observations.find_by_subject(workspace_id, subject_type, subject_id)
    await knowledge.upsert(scope, [document_of(one) for one in current if one.version not in read])
    return done


async def forget(
    observations: ObservationStore,
    knowledge: KnowledgeStore,
    workspace_id: str,
    subject_type: str,
    subject_id: str,
    *,
    actor: str | None = None,
    files: Path | None = None,
    vacuum: bool = False,
) -> dict[str, int]:
    """Remove every trace of a subject and return how many rows of each kind; files below the root `files`, too.

    On SQLite the bytes are gone from the database's files, too; on PostgreSQL they are with `vacuum`, or once the
    server vacuums by itself. Identities that are linked to a person go with it. `unattributed_…` counts rows of
    earlier releases that name no person."""
    store = observations.store
    people = open_people(store)
    identities = await _identities(people, workspace_id, subject_type, subject_id)
    removed: dict[str, int] = {}
    for identity in identities:
        for kind, count in (
            await _forget_identity(observations, knowledge, identity, actor, files)
        ).items():
            # The count of rows without a person is the same for all of them.
            removed[kind] = count if kind.startswith(UNATTRIBUTED) else removed.get(kind, 0) + count
    # Last, so that forgetting that was cut short finds all of them once more.
    # Only people can have been linked.
    for identity in identities if subject_type.upper() == USER else ():
        await people.unlink(identity)
    if vacuum or not store.has_server:
        await store.vacuum()
    return removed


async def _identities(
    people: People, workspace_id: str, subject_type: str, subject_id: str
) -> list[str]:
    """All subjects of whoever is to be forgotten; one without a channel means everybody of that id or name."""
    key = subject_key(workspace_id, subject_type, subject_id)
    if subject_type.upper() != USER:
        return [key]
    linked = [
        identity
        for one in (key, *await people.known_as(key))
        for identity in await people.identities(one)
    ]
    return list(dict.fromkeys([*linked, *filter(None, map(former_key, linked))]))


async def _forget_identity(
    observations: ObservationStore,
    knowledge: KnowledgeStore,
    identity: str,
    actor: str | None,
    files: Path | None,
) -> dict[str, int]:
    removed = await observations.forget(*parts_of(identity), actor=actor)
    # A relay may have read them before they went: what it writes late is older than this, and does not come back.
    removed["index"] = await knowledge.clear(KnowledgeScope(DEFAULT_AGENT_NAME, identity))
    if files is not None:
        removed |= await asyncio.to_thread(_forget_files, files, identity)
    return removed


def _forget_files(root: Path, subject: str) -> dict[str, int]:
    try:
        removed, left = stored_files.forget(root, subject), stored_files.count_unattributed(root)
    except OSError as error:
        raise HoldfastError(
            f"a file below {root} cannot be removed: {error.strerror}; mend that and forget once more"
        ) from error
    return {"files": removed} | ({f"{UNATTRIBUTED}files": left} if left else {})
