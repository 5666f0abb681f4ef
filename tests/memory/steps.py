"""Steps of tests of memory."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any, cast

import psycopg

from holdfast.consumers.memory import KnowledgeStoreOutboxRelay, RelayOptions
from holdfast.memory.knowledge import DEFAULT_AGENT_NAME, KnowledgeScope, KnowledgeStore
from holdfast.memory.observation import Observation, ObservationStore
from holdfast.queue.event import MEMORY
from holdfast.queue.store import Store
from holdfast.settings import sqlite_path

ANN = KnowledgeScope(DEFAULT_AGENT_NAME, "acme:USER:ann")
BOB = KnowledgeScope(DEFAULT_AGENT_NAME, "acme:USER:bob")


def fact(
    content: str = "Ann likes green tea", id: str = "w", subject: str = "ann", **fields: Any
) -> Observation:
    return Observation(
        **{
            "workspace_id": "acme",
            "subject_type": "USER",
            "subject_id": subject,
            "id": id,
            "content": content,
        }
        | fields
    )


async def outbox(store: Store) -> list[tuple[str, str]]:
    """Return the pending changes, oldest first: observation id and operation."""
    events = await store.waiting(MEMORY, "")
    return [(event.event["observation_local_id"], event.event["operation"]) for event in events]


async def has_live(store: Store, queue: str) -> bool:
    """Return whether a queue has live events."""
    return any(count.queue == queue for count in await store.counts())


def relay_to(
    observations: ObservationStore, knowledge: object, **options: Any
) -> KnowledgeStoreOutboxRelay:
    """Return a relay to a knowledge store that a test made."""
    return KnowledgeStoreOutboxRelay(
        observations, cast(KnowledgeStore, knowledge), options=RelayOptions(**options)
    )


async def wait_indexed(store: Store, *, within: float = 120) -> None:
    """Wait until relays have emptied the outbox."""
    async with asyncio.timeout(within):
        while await has_live(store, MEMORY):  # noqa: ASYNC110 - the database has no signal
            await asyncio.sleep(0.05)


def tables_that_hold(url: str, text: str) -> list[str]:
    """Return the tables in which any row contains the text."""
    path = sqlite_path(url)
    if path is not None:
        with closing(sqlite3.connect(path)) as file:
            names = [
                name
                for (name,) in file.execute("select name from sqlite_master where type = 'table'")
            ]
            return [
                name
                for name in names
                if text in repr(file.execute(f'select * from "{name}"').fetchall())
            ]
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "select tablename from pg_tables where schemaname = 'agent'"
        ).fetchall()
        rows = {
            name: connection.execute(f"select t::text from agent.{name} as t").fetchall()
            for (name,) in tables
        }
    return [name for name, found in rows.items() if text in repr(found)]
