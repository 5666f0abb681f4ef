"""The server inside a running harness."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import psycopg
import pytest

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.api.server import serve_http, serve_metrics
from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.testing.databases import Databases
from holdfast.testing.servers import url_of
from tests.api.serving import LOOPBACK, TIMEOUT_SECONDS, Serve, ask_json, becomes, serving


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> AgentHarness:
    return AgentHarness(echo, settings=Settings(database=database_url, home=tmp_path))


@pytest.mark.parametrize("serve", [serve_http, serve_metrics])
async def test_a_running_harness_is_alive_and_ready(app: AgentHarness, serve: Serve) -> None:
    async with serving(app, serve) as port:
        assert (await ask_json(port, "/healthz"))[0] == 200
        assert await ask_json(port, "/readyz") == (200, {"status": "ready"})


async def test_an_unknown_path_and_a_wrong_method_are_refused_in_json(app: AgentHarness) -> None:
    async with serving(app) as port:
        assert await ask_json(port, "/nothing/here") == (404, {"error": "Not found"})
        assert await ask_json(port, "/healthz", "POST") == (405, {"error": "Method not allowed"})


async def test_a_database_that_refuses_connections_turns_readiness_red_until_it_is_back(
    databases: Databases,
) -> None:
    with databases.fresh("postgres") as url, _admin(databases) as admin:
        name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
        async with serving(AgentHarness(echo, settings=Settings(database=url))) as port:
            await becomes(port, "/readyz", 200)
            admin.execute(f"alter database {name} allow_connections false")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while (await ask_json(port, "/readyz"))[0] == 200:
                    # Repeat: a session that was just being opened is not in the list yet.
                    admin.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
                        (name,),
                    )
            assert (await ask_json(port, "/healthz"))[0] == 200
            admin.execute(f"alter database {name} allow_connections true")
            await becomes(port, "/readyz", 200)


async def test_a_database_without_our_tables_is_not_ready(databases: Databases) -> None:
    with databases.fresh("postgres") as url, psycopg.connect(url, autocommit=True) as admin:
        async with serving(AgentHarness(echo, settings=Settings(database=url))) as port:
            admin.execute("alter table agent.setting rename to elsewhere")
            status, body = await ask_json(port, "/readyz")
            assert (status, "agent.setting" in body["error"]) == (503, True)
            admin.execute("alter table agent.elsewhere rename to setting")
            assert (await ask_json(port, "/readyz"))[0] == 200


async def test_a_harness_that_was_told_to_stop_takes_nothing_new_and_still_answers(
    app: AgentHarness,
) -> None:
    working, finish = asyncio.Event(), asyncio.Event()

    @app.agent("slow")
    async def slow(_: object) -> None:
        working.set()
        await finish.wait()

    async with serving(app) as port:
        await app.put("hello", agent="slow")
        await working.wait()
        app.stop()
        assert await ask_json(port, "/readyz") == (503, {"error": "stopping"})
        finish.set()


async def test_the_server_ends_with_the_harness_and_its_port_is_free_again(
    app: AgentHarness,
) -> None:
    async with serving(app) as port:
        pass
    socket.create_server((LOOPBACK, port)).close()


async def test_the_server_leaves_signals_to_the_harness(app: AgentHarness) -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with serving(app) as port:
        await becomes(port, "/healthz", 200)
        assert signal.getsignal(signal.SIGTERM) is before


async def test_a_cancelled_harness_takes_its_server_along(app: AgentHarness) -> None:
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        async with serving(app) as port:
            started.set_result(port)
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    port = await started
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    socket.create_server((LOOPBACK, port)).close()


async def test_a_port_in_use_is_one_clear_error(app: AgentHarness) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            HoldfastError, match=f"cannot listen at 127.0.0.1 port {port}: .*--port"
        ):
            async with serve_http(app, LOOPBACK, port):
                pass


def _admin(databases: Databases) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(url_of(databases.server("postgres"), "postgres"), autocommit=True)
