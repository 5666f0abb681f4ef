"""Everything but the direct session works through PgBouncer in transaction mode."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from holdfast import AgentHarness, Turn
from holdfast.migrations.runner import migrate
from holdfast.queue.event import INBOX
from holdfast.queue.outcome import Done
from holdfast.queue.store import Filter, Store, SweepPolicy
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.testing.servers import Unavailable
from tests.conformance.steps import message
from tests.failover.pooler import CLIENTS, SERVERS, Pooler, pooler
from tests.steps import AT_ONCE, finished, running

PROCESSES = 20
LEASE = timedelta(minutes=1)


@pytest.fixture(params=[200, 0], ids=["with prepared statements", "without"])
def bouncer(request: pytest.FixtureRequest) -> Iterator[Pooler]:
    try:
        with pooler(request.param) as running_one:
            migrate(running_one.url)
            yield running_one
    except Unavailable as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(reason))


async def work(store: Store, name: str) -> int:
    """Put, claim, renew, note and settle as a worker does, and read. Returns the turns worked."""
    await store.put([message(lane=name), message(lane=name)])
    worked = 0
    while turns := await store.claim(INBOX, [""], limit=1, lease=LEASE, holder=name):
        async with store.transaction() as tx:
            await store.put([message(queue="outbox")], tx=tx)
        assert await store.renew(turns, LEASE) == []
        await store.checkpoint(turns[0], {"by": name})
        await store.settle([(turns[0], Done((message(queue="memory", lane=name),)))])
        worked += 1
    await store.sweep(SweepPolicy())
    await store.finished(Filter(), limit=5, most_bytes=1000)
    return worked


async def test_200_clients_share_20_server_connections(bouncer: Pooler) -> None:
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(
                open_store(bouncer.url, direct_url=bouncer.direct, pool_size=CLIENTS // PROCESSES)
            )
            for _ in range(PROCESSES)
        ]
        tasks = [
            work(store, f"{number} {nth}")
            for number, store in enumerate(stores)
            for nth in range(CLIENTS // PROCESSES)
        ]
        worked = await asyncio.gather(*tasks)
        assert sum(worked) == 2 * CLIENTS
        assert bouncer.clients() == CLIENTS
        with psycopg.connect(bouncer.direct) as connection:
            [backends] = connection.execute(
                "select count(*) from pg_stat_activity where backend_type = 'client backend'"
            ).fetchone() or (0,)
        assert backends <= SERVERS + 1


async def test_a_harness_works_behind_a_pooler(bouncer: Pooler, tmp_path: Path) -> None:
    async def answer(turn: Turn) -> str:
        return str(await turn.step("count", len, turn.text))

    app = AgentHarness(answer)
    settings = Settings(
        home=tmp_path, database=bouncer.url, database_direct=bouncer.direct, poll_jitter=AT_ONCE
    )
    async with running(app, settings):
        await asyncio.gather(*[app.put("four", message_id=f"m{number}") for number in range(50)])
        async with open_store(bouncer.url, direct_url=bouncer.direct) as other:
            ended = await finished(other, 50, queue="inbox")
            assert {(one.outcome, one.attempts) for one in ended} == {("completed", 1)}
            replies = await other.waiting("outbox", "api", limit=100)
            assert [reply.event["message"] for reply in replies] == ["4"] * 50
