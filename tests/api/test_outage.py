"""Requests while the database stops: an answer within two seconds, whatever was under way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.settings import Settings
from tests.api.serving import ask, becomes, serving
from tests.private_server import Server, private_server
from tests.process.test_outage import set_read_only

AT_ONCE = 12
WITHIN = 2.0


@pytest.fixture
def server() -> Iterator[Server]:
    with private_server() as server:
        yield server


async def test_a_post_and_reads_during_an_immediate_stop_are_a_503_within_2_s(
    server: Server,
) -> None:
    settings = Settings(database=server.url, database_direct=server.url, connections=4)
    # A thread for each client, so that no client's time counts the wait for another one.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * AT_ONCE))
    async with serving(AgentHarness(echo, settings=settings)) as port:
        found: list[tuple[int, float]] = []

        async def hammer(method: str, path: str, body: object) -> None:
            until = time.monotonic() + 6
            while time.monotonic() < until:
                began_at = time.monotonic()
                status, _ = await ask(port, path, method, body)
                found.append((status, time.monotonic() - began_at))

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE // 3):
                group.create_task(hammer("POST", "/api/message", {"message": "hi"}))
                group.create_task(hammer("GET", "/api/responses", None))
                group.create_task(hammer("GET", "/api/queue/dead", None))
            await asyncio.sleep(1)
            await asyncio.to_thread(server.stop, "immediate")
        assert {status for status, _ in found} == {200, 503}
        assert max(took for _, took in found) < WITHIN
        await asyncio.to_thread(server.start)
        await becomes(port, "/api/responses", 200)


async def test_writes_to_a_read_only_server_are_a_503_and_reads_go_on(server: Server) -> None:
    settings = Settings(database=server.url, database_direct=server.url, connections=4)
    async with serving(AgentHarness(echo, settings=settings)) as port:
        assert (await ask(port, "/api/message", "POST", {"message": "hi"}))[0] == 200
        set_read_only(server, "on")
        assert (await ask(port, "/api/message", "POST", {"message": "hi"}))[0] == 503
        assert (await ask(port, "/api/responses"))[0] == 200
        set_read_only(server, "off")
        until = time.monotonic() + 20
        while (await ask(port, "/api/message", "POST", {"message": "hi"}))[0] != 200:
            assert time.monotonic() < until
