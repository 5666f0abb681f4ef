"""A head that a person brought back is fresh, while what waits behind it may have been tried."""

from __future__ import annotations

from holdfast.queue.store import Filter, Store
from tests.conformance.steps import claim_ids, claim_one, ended, put_lane


async def test_a_fresh_head_does_not_collect_what_was_tried(store: Store) -> None:
    first, second, third = await put_lane(store, 3)
    assert (await claim_one(store, collect_limit=10)).ids == [first, second, third]
    assert await store.cancel(first, "stop")
    assert await store.retry(Filter(ids=[first])) == [first]
    turn = await claim_one(store, collect_limit=10)
    assert turn.ids == [second]
    assert await ended(store, turn) == "completed"
    assert await claim_ids(store, collect_limit=10) == [[first]]
