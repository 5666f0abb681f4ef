"""Holdfast: a durable runtime for chat agents."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.agents.base import Reply
    from holdfast.app import AgentHarness
    from holdfast.memory import (
        DEFAULT_AGENT_NAME,
        POISON_CLAIM,
        DrainResult,
        Embedder,
        IndexOptions,
        IndexUnavailable,
        KnowledgeDocument,
        KnowledgeScope,
        KnowledgeSource,
        KnowledgeStore,
        KnowledgeStoreOutboxRelay,
        Observation,
        ObservationStore,
        ObservationType,
        PostgresObservationStore,
        RelayOptions,
        SqliteObservationStore,
        open_knowledge,
        open_observations,
    )
    from holdfast.queue.event import NewEvent, Turn, new_id
    from holdfast.queue.outcome import Dead, Done, Retry, Snooze
    from holdfast.store import Store, open_store

__version__ = "0.5.0"
__all__ = [
    "DEFAULT_AGENT_NAME",
    "POISON_CLAIM",
    "AgentHarness",
    "Dead",
    "Done",
    "DrainResult",
    "Embedder",
    "IndexOptions",
    "IndexUnavailable",
    "KnowledgeDocument",
    "KnowledgeScope",
    "KnowledgeSource",
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
    "agents.base": ("Reply",),
    "queue.event": ("NewEvent", "Turn", "new_id"),
    "app": ("AgentHarness",),
    "queue.outcome": ("Dead", "Done", "Retry", "Snooze"),
    "store": ("Store", "open_store"),
}


def __getattr__(name: str) -> Any:
    # Imported when asked for: `holdfast --help` needs none of it.
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"holdfast.{home}"), name)
    if name in __all__:
        return getattr(import_module("holdfast.memory"), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
