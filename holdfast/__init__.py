"""Holdfast: a durable runtime for chat agents."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.agent import Reply
    from holdfast.event import NewEvent, Turn, new_id
    from holdfast.harness import AgentHarness
    from holdfast.memory.knowledge import IndexOptions, KnowledgeDocument, KnowledgeScope, KnowledgeStore
    from holdfast.memory.observation import Observation, ObservationType
    from holdfast.outcome import Dead, Done, Retry, Snooze
    from holdfast.relay import DEFAULT_AGENT_NAME, POISON_CLAIM, DrainResult, KnowledgeStoreOutboxRelay, RelayOptions
    from holdfast.store import Store, open_store
    from holdfast.store.memories import ObservationStore, open_knowledge, open_observations
    from holdfast.store.postgres.observations import PostgresObservationStore
    from holdfast.store.sqlite.observations import SqliteObservationStore

__version__ = "0.2.0"
__all__ = [
    "DEFAULT_AGENT_NAME",
    "POISON_CLAIM",
    "AgentHarness",
    "Dead",
    "Done",
    "DrainResult",
    "IndexOptions",
    "KnowledgeDocument",
    "KnowledgeScope",
    "KnowledgeStore",
    "KnowledgeStoreOutboxRelay",
    "NewEvent",
    "Observation",
    "ObservationStore",
    "ObservationType",
    "PostgresObservationStore",
    "RelayOptions",
    "Reply",
    "Retry",
    "Snooze",
    "SqliteObservationStore",
    "Store",
    "Turn",
    "new_id",
    "open_knowledge",
    "open_observations",
    "open_store",
]

_HOMES = {
    "agent": ("Reply",),
    "event": ("NewEvent", "Turn", "new_id"),
    "harness": ("AgentHarness",),
    "memory.knowledge": ("IndexOptions", "KnowledgeDocument", "KnowledgeScope", "KnowledgeStore"),
    "memory.observation": ("Observation", "ObservationType"),
    "outcome": ("Dead", "Done", "Retry", "Snooze"),
    "relay": ("DEFAULT_AGENT_NAME", "POISON_CLAIM", "DrainResult", "KnowledgeStoreOutboxRelay", "RelayOptions"),
    "store": ("Store", "open_store"),
    "store.memories": ("ObservationStore", "open_knowledge", "open_observations"),
    "store.postgres.observations": ("PostgresObservationStore",),
    "store.sqlite.observations": ("SqliteObservationStore",),
}


def __getattr__(name: str) -> Any:
    # Imported when asked for: `holdfast --help` needs none of it.
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"holdfast.{home}"), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
