"""Holdfast: a durable runtime for chat agents."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.agents.base import Reply
    from holdfast.agents.tools import tool
    from holdfast.agents.turn import Turn
    from holdfast.app import AgentHarness
    from holdfast.consumers.memory import (
        POISON_CLAIM,
        DrainResult,
        KnowledgeStoreOutboxRelay,
        RelayOptions,
    )
    from holdfast.errors import EffectUnknown, LeaseLost, NotDone, StepError
    from holdfast.memory import (
        DEFAULT_AGENT_NAME,
        Embedder,
        IndexOptions,
        IndexUnavailable,
        KnowledgeDocument,
        KnowledgeScope,
        KnowledgeSource,
        KnowledgeStore,
        Observation,
        ObservationStore,
        ObservationType,
    )
    from holdfast.queue.event import NewEvent, new_id
    from holdfast.queue.outcome import Dead, Done, Retry, Snooze
    from holdfast.store import Store, open_store
    from holdfast.store.memory import open_knowledge, open_observations
    from holdfast.store.postgres.observations import PostgresObservationStore
    from holdfast.store.sqlite.memory import SqliteObservationStore

__version__ = "0.8.0"
__all__ = [
    "DEFAULT_AGENT_NAME",
    "POISON_CLAIM",
    "AgentHarness",
    "Dead",
    "Done",
    "DrainResult",
    "EffectUnknown",
    "Embedder",
    "IndexOptions",
    "IndexUnavailable",
    "KnowledgeDocument",
    "KnowledgeScope",
    "KnowledgeSource",
    "KnowledgeStore",
    "KnowledgeStoreOutboxRelay",
    "LeaseLost",
    "NewEvent",
    "NotDone",
    "Observation",
    "ObservationStore",
    "ObservationType",
    "PostgresObservationStore",
    "RelayOptions",
    "Reply",
    "Retry",
    "Snooze",
    "SqliteObservationStore",
    "StepError",
    "Store",
    "Turn",
    "new_id",
    "open_knowledge",
    "open_observations",
    "open_store",
    "tool",
]


# The modules behind the public names. Each is imported when one of its names is first used:
# `holdfast --help` needs none, and an app on SQLite needs no driver of PostgreSQL.
def _agents() -> ModuleType:
    from holdfast.agents import base

    return base


def _tools() -> ModuleType:
    from holdfast.agents import tools

    return tools


def _turn() -> ModuleType:
    from holdfast.agents import turn

    return turn


def _app() -> ModuleType:
    from holdfast import app

    return app


def _errors() -> ModuleType:
    from holdfast import errors

    return errors


def _events() -> ModuleType:
    from holdfast.queue import event

    return event


def _memory() -> ModuleType:
    from holdfast import memory

    return memory


def _outcomes() -> ModuleType:
    from holdfast.queue import outcome

    return outcome


def _postgres() -> ModuleType:
    from holdfast.store.postgres import observations

    return observations


def _relay() -> ModuleType:
    from holdfast.consumers import memory

    return memory


def _sqlite() -> ModuleType:
    from holdfast.store.sqlite import memory

    return memory


def _store() -> ModuleType:
    from holdfast import store

    return store


def _stored_memory() -> ModuleType:
    from holdfast.store import memory

    return memory


_HOMES = {
    "AgentHarness": _app,
    "Reply": _agents,
    "Turn": _turn,
    "tool": _tools,
    **dict.fromkeys(("EffectUnknown", "LeaseLost", "NotDone", "StepError"), _errors),
    **dict.fromkeys(("NewEvent", "new_id"), _events),
    **dict.fromkeys(("Dead", "Done", "Retry", "Snooze"), _outcomes),
    **dict.fromkeys(("Store", "open_store"), _store),
    **dict.fromkeys(("open_knowledge", "open_observations"), _stored_memory),
    "PostgresObservationStore": _postgres,
    "SqliteObservationStore": _sqlite,
    **dict.fromkeys(
        ("POISON_CLAIM", "DrainResult", "KnowledgeStoreOutboxRelay", "RelayOptions"), _relay
    ),
}


def __getattr__(name: str) -> Any:
    """Import a public name; those without another home belong to holdfast.memory."""
    if name not in __all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = globals()[name] = getattr(_HOMES.get(name, _memory)(), name)
    return value
