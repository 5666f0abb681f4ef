"""Maintenance of memory: purge, verify the index against the observations, and rebuild it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.memory.embedder import model_key
from holdfast.memory.index import KnowledgeIndex
from holdfast.memory.knowledge import (
    DEFAULT_AGENT_NAME,
    IndexOptions,
    IndexStatus,
    KnowledgeScope,
    KnowledgeStore,
)
from holdfast.memory.observation import ObservationStore, document_of
from holdfast.queue.event import MEMORY
from holdfast.queue.store import Store
from holdfast.telemetry import MODEL_CHANGED, SWEPT
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

INDEX = "index"
"""Name of the setting that records the model of the index."""


@dataclass(slots=True)
class MemorySweeper:
    """The part of a process's sweep that is about memory. Without an index it only purges."""

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
        """Queue a change for each document that another model indexed. Returns their number.

        The process that started last decides the model. Relays of other processes may go on using
        an older one; the next sweep finds the documents that they indexed."""
        embedder, store = await knowledge.active_embedder(), self.observations.store
        record = {"model": embedder.model, "dimensions": embedder.dimensions}
        mark = model_key(embedder)
        recorded = await store.setting(INDEX)
        if mark != self._announced and recorded != record:
            await store.set_setting(INDEX, record)
        elif recorded != record:
            return 0
        self._announced, requeued = mark, 0
        while count := await self.observations.requeue_outdated(DEFAULT_AGENT_NAME, mark):
            requeued += count
        if requeued:
            log.warning(Entry(MODEL_CHANGED, **record, documents=requeued))
        return requeued


async def index_progress(store: Store, knowledge: KnowledgeIndex) -> IndexStatus | None:
    """Return how much the recorded model has indexed, or None if no model is recorded yet."""
    recorded = await store.setting(INDEX)
    if recorded is None:
        return None
    status = await knowledge.tables.status(recorded["model"], recorded["dimensions"])
    return replace(status, scopes=())


@dataclass(frozen=True, slots=True)
class Difference:
    """A document that the index lacks, has without an observation, or has with other content."""

    subject_key: str
    id: str
    what: str


async def verify(observations: ObservationStore, knowledge: KnowledgeStore) -> list[Difference]:
    """Return all differences between the observations and their index."""
    differences: list[Difference] = []
    keys = set()
    for subject in await observations.find_subjects():
        keys.add(subject.key)
        known = await observations.find_by_subject(subject.workspace_id, subject.type, subject.id)
        wanted = {observation.id: document_of(observation).hash for observation in known}
        differences += await _compare(knowledge, subject.key, wanted)
    for scope in (await knowledge.status()).scopes:
        if scope.agent_name == DEFAULT_AGENT_NAME and scope.context_id not in keys:
            differences += await _compare(knowledge, scope.context_id, {})
    return differences


async def _compare(knowledge: KnowledgeStore, key: str, wanted: dict[str, str]) -> list[Difference]:
    indexed = await knowledge.documents(KnowledgeScope(DEFAULT_AGENT_NAME, key))
    missing = [Difference(key, id_, "missing") for id_ in wanted.keys() - indexed.keys()]
    unknown = [Difference(key, id_, "unknown") for id_ in indexed.keys() - wanted.keys()]
    other = [
        Difference(key, id_, "other content")
        for id_ in wanted.keys() & indexed.keys()
        if wanted[id_] != indexed[id_]
    ]
    return sorted(missing + unknown + other, key=lambda difference: difference.id)


async def reindex(
    observations: ObservationStore,
    knowledge: KnowledgeStore,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Rebuild the index from the observations, subject by subject; it stays searchable.

    Returns the number of documents."""
    keys = [subject.key for subject in await observations.find_subjects()]
    scopes = (await knowledge.status()).scopes
    keys += [scope.context_id for scope in scopes if scope.agent_name == DEFAULT_AGENT_NAME]
    done = 0
    for key in dict.fromkeys(keys):
        done += await _reindex_subject(
            observations, knowledge, key, _progress_from(done, on_progress)
        )
    return done


def _progress_from(before: int, on_progress: Callable[[int], None] | None) -> IndexOptions:
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
    # A relay may have indexed newer versions while we rebuilt; the replace dropped them, so add
    # them again.
    read = {observation.version for observation in known}
    current = await observations.find_by_subject(workspace_id, subject_type, subject_id)
    newer = [document_of(one) for one in current if one.version not in read]
    await knowledge.upsert(scope, newer)
    return done
