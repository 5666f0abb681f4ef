"""What time and a new model bring: deleted observations go in the end, and everything is indexed anew by itself."""

from __future__ import annotations

from datetime import timedelta

from holdfast.event import MEMORY
from holdfast.store.base import Count, Process, Store
from holdfast.store.memories import ObservationStore
from holdfast.sweeper import Retention, Sweeper
from holdfast.testing.clock import Clock
from tests.memory.steps import fact


async def swept(store: Store, observations: ObservationStore, keep: Retention) -> None:
    """One round of a sweeper."""
    now = await store.now()
    process = Process(id="one", host="here", started_at=now, seen_at=now)
    await Sweeper(store, [], lambda: process, keep=keep, observations=observations).sweep()


async def pending(store: Store) -> Count:
    [count] = [count for count in await store.counts() if count.queue == MEMORY]
    return count


async def test_a_softly_deleted_observation_is_swept_away_after_its_time(
    store: Store, observations: ObservationStore, clock: Clock
) -> None:
    keep = Retention(deleted_observations=timedelta(days=7))
    await observations.save(fact(id="gone"))
    await observations.save(fact(id="kept"))
    await observations.soft_delete("acme", "gone")
    clock.tick(days=7)
    await swept(store, observations, keep)
    await observations.save(fact(id="younger"))
    await observations.soft_delete("acme", "younger")
    clock.tick(seconds=1)
    await swept(store, observations, keep)
    assert await observations.purge_soft_deleted_before(clock.now + timedelta(days=1)) == 1
    assert [found.id for found in await observations.find_by_subject("acme", "USER", "ann")] == ["kept"]


async def test_the_oldest_pending_change_counts_also_while_a_relay_holds_it(
    store: Store, observations: ObservationStore, clock: Clock
) -> None:
    saved_at = clock.now
    await observations.save(fact())
    clock.tick(minutes=10)
    await store.claim(MEMORY, [""], limit=1, lease=timedelta(minutes=1))
    count = await pending(store)
    assert (count.leased, count.ready_since, count.pending_since) == (1, None, saved_at)
