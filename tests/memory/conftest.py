"""Observations, an index and a relay on every engine."""

from __future__ import annotations

import pytest

from holdfast.consumers.memory import KnowledgeStoreOutboxRelay
from holdfast.memory.embedder import Embedder, LocalEmbedder
from holdfast.memory.knowledge import KnowledgeStore
from holdfast.memory.observation import ObservationStore
from holdfast.queue.store import Store
from holdfast.store.memory import open_knowledge, open_observations
from tests.memory.moody import Moody
from tests.memory.steps import relay_to


@pytest.fixture(scope="session")
def embedder() -> Embedder:
    """The local embedder, loaded once."""
    return LocalEmbedder()


@pytest.fixture
def observations(store: Store) -> ObservationStore:
    return open_observations(store)


@pytest.fixture
def knowledge(store: Store, embedder: Embedder) -> KnowledgeStore:
    return open_knowledge(store, embedder)


@pytest.fixture
def relay(observations: ObservationStore, knowledge: KnowledgeStore) -> KnowledgeStoreOutboxRelay:
    return KnowledgeStoreOutboxRelay(observations, knowledge)


@pytest.fixture
def moody(knowledge: KnowledgeStore) -> Moody:
    return Moody(knowledge)


@pytest.fixture
def moody_relay(observations: ObservationStore, moody: Moody) -> KnowledgeStoreOutboxRelay:
    return relay_to(observations, moody, max_attempts=3)
