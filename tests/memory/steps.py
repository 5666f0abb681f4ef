"""The steps that tests of memory are told in."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.event import MEMORY
from holdfast.memory.knowledge import KnowledgeScope
from holdfast.memory.observation import Observation
from holdfast.store.base import Store
from holdfast.store.memories import DEFAULT_AGENT_NAME

ANN = KnowledgeScope(DEFAULT_AGENT_NAME, "acme:USER:ann")
BOB = KnowledgeScope(DEFAULT_AGENT_NAME, "acme:USER:bob")


def fact(content: str = "Ann likes green tea", id: str = "w", subject: str = "ann", **fields: Any) -> Observation:
    return Observation(
        **{"workspace_id": "acme", "subject_type": "USER", "subject_id": subject, "id": id, "content": content} | fields
    )


async def outbox(store: Store) -> list[tuple[str, str]]:
    """The pending changes, oldest first: which observation, and what to do."""
    events = await store.waiting(MEMORY, "")
    return [(event.event["observation_local_id"], event.event["operation"]) for event in events]


async def indexed(store: Store, *, within: float = 120) -> None:
    """Waits until relays have left nothing in the outbox."""
    async with asyncio.timeout(within):
        while any(count.queue == MEMORY for count in await store.counts()):  # noqa: ASYNC110 - it is the database's
            await asyncio.sleep(0.05)
