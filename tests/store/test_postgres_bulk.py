"""Bulk puts on PostgreSQL: payloads are encoded while the server reserves ids."""

from __future__ import annotations

import pytest

from holdfast.queue.event import NewEvent
from holdfast.store.postgres.bulk import put_bulk
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.databases import Databases

MANY = 600


@pytest.mark.parametrize("ahead", [0, 5000])
async def test_payloads_beyond_those_encoded_ahead_follow_in_order(
    databases: Databases, ahead: int
) -> None:
    news = [NewEvent(event={"n": n}, lane=f"l {n}", message_id=f"m {n}") for n in range(MANY)]
    with databases.fresh("postgres") as url:
        async with PostgresStore(url) as store:
            ids, _ = await put_bulk(store.connections, news, (), ahead=ahead)
            stored = [await store.live(id_ or 0) for id_ in ids]
    assert [event and event.event for event in stored] == [new.event for new in news]
