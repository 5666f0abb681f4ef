"""The fixtures give every engine a fresh, migrated database and a clock that the test moves."""

from datetime import timedelta

from holdfast.queue.event import NewEvent
from holdfast.queue.store import Store
from holdfast.testing.clock import Clock
from holdfast.testing.fixtures import StoreFactory


async def test_two_stores_share_a_database_and_a_clock(
    store: Store, another_store: StoreFactory, clock: Clock
) -> None:
    other = await another_store()
    [event_id] = await store.put([NewEvent(event={"text": "hello"})])
    assert event_id is not None
    found = await other.live(event_id)
    assert found is not None
    assert found.vt == clock()
    clock.tick(minutes=1)
    assert await other.now() == found.vt + timedelta(minutes=1)


async def test_a_fresh_database_is_empty(store: Store) -> None:
    assert await store.counts() == []
