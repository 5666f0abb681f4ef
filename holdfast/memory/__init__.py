"""Memory: observations about people and agents, and the index that finds them again.

This package holds the concepts and opens no database. The engines in `holdfast.store` implement
its protocols, and `holdfast.store.memory` opens them. The relay that fills the index is in
`holdfast.consumers.memory`; `holdfast.store.forget` erases a person. `holdfast` exports all of it.
"""

from holdfast.memory.embedder import Embedder, LocalEmbedder
from holdfast.memory.knowledge import (
    DEFAULT_AGENT_NAME,
    Hit,
    IndexOptions,
    IndexStatus,
    IndexUnavailable,
    KnowledgeDocument,
    KnowledgeScope,
    KnowledgeSource,
    KnowledgeStore,
)
from holdfast.memory.observation import Observation, ObservationStore, ObservationType, Subject
from holdfast.memory.people import People
from holdfast.memory.turn import NO_MEMORY, Memory, NoMemory

__all__ = [
    "DEFAULT_AGENT_NAME",
    "NO_MEMORY",
    "Embedder",
    "Hit",
    "IndexOptions",
    "IndexStatus",
    "IndexUnavailable",
    "KnowledgeDocument",
    "KnowledgeScope",
    "KnowledgeSource",
    "KnowledgeStore",
    "LocalEmbedder",
    "Memory",
    "NoMemory",
    "Observation",
    "ObservationStore",
    "ObservationType",
    "People",
    "Subject",
]
