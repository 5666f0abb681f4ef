"""What metrics read at the moment of asking: places in use, what waits and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.errors import HoldfastError
from holdfast.queue.consumer import Consumer
from holdfast.queue.store import Count, Store
from holdfast.telemetry import (
    EVENTS,
    OLDEST_PENDING,
    OLDEST_READY,
    OLDEST_SNAPSHOT,
    SLOTS,
    SLOTS_BUSY,
    STORE_UP,
    exporter,
)
from holdfast.telemetry.instruments import OTHER, Reading, bounded

STATES = ("ready", "delayed", "queued", "leased")
MOST_TARGETS = 100
"""Agents and channels that `holdfast_events` keeps apart."""
PATIENCE = timedelta(seconds=5)
"""How long the database may take; without it, metrics say that it is away."""
EXPORT_EVERY = timedelta(seconds=30)


async def read(store: Store, consumers: Sequence[Consumer]) -> list[Reading]:
    """Never fails: what the database does not tell is left out."""
    readings = [*_places(consumers)]
    try:
        async with asyncio.timeout(PATIENCE.total_seconds()):
            readings += await _of_store(
                store, {consumer.policy.queue: consumer.policy.unnamed for consumer in consumers}
            )
            readings.append((STORE_UP, (), 1))
    except (HoldfastError, TimeoutError):
        readings.append((STORE_UP, (), 0))
    return readings


async def keep_reading(store: Store, consumers: Sequence[Consumer]) -> None:
    """For whoever exports metrics without asking."""
    while True:
        exporter.latest[:] = await read(store, consumers)
        await asyncio.sleep(EXPORT_EVERY.total_seconds())


def _places(consumers: Sequence[Consumer]) -> list[Reading]:
    """Turns that only wait for their end to be stored take no place."""
    return [
        reading
        for consumer in consumers
        for reading in (
            (SLOTS, (consumer.policy.queue,), consumer.slots.total),
            (SLOTS_BUSY, (consumer.policy.queue,), min(consumer.running, consumer.slots.total)),
        )
    ]


async def _of_store(store: Store, unnamed: dict[str, str]) -> list[Reading]:
    counts = await store.counts()
    readings = _depths(counts, unnamed)
    readings += _oldest(counts, await store.now())
    if (age := await store.oldest_snapshot()) is not None:
        readings.append((OLDEST_SNAPSHOT, (), age.total_seconds()))
    return readings


def _depths(counts: Sequence[Count], unnamed: dict[str, str]) -> list[Reading]:
    """Live events by queue and agent; the target '' and the name of its agent are the same agent.

    Clients may invent channels: those with the fewest events are counted together as `other`.
    """
    depths: dict[tuple[str, ...], int] = {}
    agents: set[tuple[str, ...]] = set()
    for count in sorted(counts, key=_events, reverse=True):
        agent = count.target or unnamed.get(count.queue, "")
        labels = bounded((count.queue, agent), 0)
        if labels not in agents and len(agents) >= MOST_TARGETS:
            labels = (labels[0], OTHER)
        agents.add(labels)
        for state in STATES:
            key = (*labels, state)
            depths[key] = depths.get(key, 0) + getattr(count, state)
    return [(EVENTS, key, number) for key, number in depths.items()]


def _events(count: Count) -> int:
    return sum(getattr(count, state) for state in STATES)


def _oldest(counts: Sequence[Count], now: datetime) -> list[Reading]:
    ready: dict[str, datetime] = {}
    pending: dict[str, datetime] = {}
    for count in counts:
        ready[count.queue] = min(ready.get(count.queue, now), count.ready_since or now)
        pending[count.queue] = min(pending.get(count.queue, now), count.pending_since or now)
    return [
        (gauge, (queue,), (now - moment).total_seconds())
        for gauge, since in ((OLDEST_READY, ready), (OLDEST_PENDING, pending))
        for queue, moment in since.items()
    ]
