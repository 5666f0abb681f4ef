"""What agents remember: observations, and the index in which they are found again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.consumers.memory import (
        DEFAULT_AGENT_NAME,
        POISON_CLAIM,
        DrainResult,
        KnowledgeStoreOutboxRelay,
        RelayOptions,
    )
    from holdfast.memory.embedder import Embedder, LocalEmbedder
    from holdfast.memory.knowledge import (
        Hit,
        IndexOptions,
        IndexStatus,
        IndexUnavailable,
        KnowledgeDocument,
        KnowledgeScope,
        KnowledgeSource,
        KnowledgeStore,
    )
    from holdfast.memory.maintenance import Difference, forget, reindex, verify
    from holdfast.memory.observation import Observation, ObservationType, Subject
    from holdfast.store.memories import ObservationStore, open_knowledge, open_observations
    from holdfast.store.postgres.observations import PostgresObservationStore
    from holdfast.store.sqlite.observations import SqliteObservationStore

__all__ = [
    "DEFAULT_AGENT_NAME",
    "POISON_CLAIM",
    "Difference",
    "DrainResult",
    "Embedder",
    "Hit",
    "IndexOptions",
    "IndexStatus",
    "IndexUnavailable",
    "KnowledgeDocument",
    "KnowledgeScope",
    "KnowledgeSource",
    "KnowledgeStore",
    "KnowledgeStoreOutboxRelay",
    "LocalEmbedder",
    "Memory",
    "Observation",
    "ObservationStore",
    "ObservationType",
    "PostgresObservationStore",
    "RelayOptions",
    "SqliteObservationStore",
    "Subject",
    "forget",
    "open_knowledge",
    "open_observations",
    "reindex",
    "verify",
]

_HOMES = {
    "memory.embedder": ("Embedder", "LocalEmbedder"),
    "memory.knowledge": (
        *("Hit", "IndexOptions", "IndexStatus", "IndexUnavailable"),
        *("KnowledgeDocument", "KnowledgeScope", "KnowledgeSource", "KnowledgeStore"),
    ),
    "memory.observation": ("Observation", "ObservationType", "Subject"),
    "consumers.memory": (
        "DEFAULT_AGENT_NAME",
        "POISON_CLAIM",
        "DrainResult",
        "KnowledgeStoreOutboxRelay",
        "RelayOptions",
    ),
    "store.memories": ("ObservationStore", "open_knowledge", "open_observations"),
    "store.postgres.observations": ("PostgresObservationStore",),
    "store.sqlite.observations": ("SqliteObservationStore",),
    "memory.maintenance": ("Difference", "forget", "reindex", "verify"),
}


def __getattr__(name: str) -> Any:
    # When asked for: most of it is made of what lies above, and a driver is needed only by who uses it.
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"holdfast.{home}"), name)
    raise AttributeError(f"module 'holdfast.memory' has no attribute {name!r}")


class Memory(Protocol):
    """What the agent of a turn remembers; see holdfast.memory.recall."""

    @property
    def relevant(self) -> Sequence[str]:
        """Observations that bear on the message, best first, within a budget."""

    async def search(self, query: str, *, max_results: int = 5) -> Sequence[str]:
        """What is known that bears on a question, best first."""

    async def recall(self, *, limit: int = 20) -> Sequence[str]:
        """What was observed last about the person who asks."""

    def observe(self, content: str, *, about: str = "USER") -> str:
        """Remember something; stored with the end of the turn. Returns its id."""


class NoMemory:
    """The memory of an agent without one. Every use is refused with a line that says what to do."""

    def __init__(
        self, reason: str = "this agent has no memory: register it with memory=True"
    ) -> None:
        self._reason = reason

    @property
    def relevant(self) -> Sequence[str]:
        raise HoldfastError(self._reason)

    async def search(self, query: str, *, max_results: int = 5) -> Sequence[str]:
        raise HoldfastError(self._reason)

    async def recall(self, *, limit: int = 20) -> Sequence[str]:
        raise HoldfastError(self._reason)

    def observe(self, content: str, *, about: str = "USER") -> str:
        raise HoldfastError(self._reason)


NO_MEMORY = NoMemory()
