"""Open the memory of a store: its observations, its knowledge index and its links of people."""

from __future__ import annotations

import asyncio

from holdfast.memory.embedder import Embedder
from holdfast.memory.index import KnowledgeIndex
from holdfast.memory.observation import Observation, ObservationStore
from holdfast.memory.people import People
from holdfast.queue.event import MEMORY
from holdfast.queue.store import Filter, Store
from holdfast.store.engine import is_sqlite, postgres_engine, sqlite_engine

POLL_SECONDS = 0.02
"""Pause between two checks of an event that has not been settled yet."""


def open_observations(store: Store) -> ObservationStore:
    """Return the observations in a store's database."""
    if is_sqlite(store):
        from holdfast.store.sqlite.memory import SqliteObservationStore

        return SqliteObservationStore(store)
    from holdfast.store.postgres.observations import PostgresObservationStore

    return PostgresObservationStore(store)


def open_knowledge(store: Store, embedder: Embedder | None = None) -> KnowledgeIndex:
    """Return the knowledge index in a store's database."""
    if is_sqlite(store):
        from holdfast.store.sqlite.memory import SqliteKnowledge

        return KnowledgeIndex(SqliteKnowledge(sqlite_engine(store)), embedder)
    from holdfast.store.postgres.knowledge import PostgresKnowledge

    return KnowledgeIndex(PostgresKnowledge(postgres_engine(store)), embedder)


def open_people(store: Store) -> People:
    """Return the links between identities in a store's database."""
    if is_sqlite(store):
        from holdfast.store.sqlite.access import SqlitePeople

        return SqlitePeople(sqlite_engine(store))
    from holdfast.store.postgres.people import PostgresPeople

    return PostgresPeople(postgres_engine(store))


async def save_unless_changed(store: Store, observation: Observation) -> bool:
    """Save an observation unless its stored version is another by now. Returns whether it did."""
    if is_sqlite(store):
        from holdfast.store.sqlite.memory import save_unless_changed as save

        return await sqlite_engine(store).write(lambda db: save(db, observation))
    from holdfast.store.postgres.observations import save_unless_changed as save_there

    return await save_there(store, observation)


async def wait_settled(store: Store, event_id: int, seconds: float) -> bool:
    """Wait until a memory event is settled.

    Returns False if it is still live after that time, or became a dead letter. A change
    is in the index once its event has been settled, so this gives read-your-writes."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while await store.live(event_id) is not None:
        if loop.time() >= until:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return not await store.dead(Filter(ids=[event_id], queue=MEMORY), limit=1)
