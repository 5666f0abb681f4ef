"""A server in recovery is an outage; when it is promoted, work goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.queue.store import Process, Store
from holdfast.store import open_store
from holdfast.testing.harness import until
from holdfast.testing.servers import Unavailable
from tests.conformance.steps import claim, message
from tests.private_server import Server, private_server

TIMELINE = "select value ->> 'id' from agent.setting where key = 'timeline'"


@pytest.fixture
def server() -> Iterator[Server]:
    try:
        with private_server() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


def make_standby(server: Server) -> None:
    """Start the server again, in recovery as a standby is."""
    folder = Path(str(server.execute("show data_directory")[0][0]))
    owner = folder.stat()
    server.stop()
    (folder / "standby.signal").touch()
    os.chown(folder / "standby.signal", owner.st_uid, owner.st_gid)
    server.start()


async def test_a_standby_is_an_outage_until_it_is_promoted(server: Server) -> None:
    async with open_store(server.url) as store:
        now = await store.now()
        await store.register(Process(id="one", host="here", started_at=now, seen_at=now))
        await store.put([message()])
        assert server.execute(TIMELINE) == [("00000001",)]
        make_standby(server)
        for call in (lambda: store.put([message()]), lambda: claim(store)):
            with pytest.raises(StoreUnavailable):
                await call()
        assert await store.reap() == []
        server.execute("select pg_promote()")
        await until(lambda: server.execute(TIMELINE) == [("00000002",)])
        await until(lambda: _claimed(store))


async def _claimed(store: Store) -> bool:
    try:
        return len(await claim(store)) == 1
    except StoreUnavailable:
        return False
