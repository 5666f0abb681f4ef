"""Three hosts and a database, each in a network namespace of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.migrations.runner import migrate
from holdfast.queue.store import Store
from holdfast.store import open_store
from holdfast.testing.servers import url_of
from tests.crash.pool import WorkerPool
from tests.crash.worker import WorkerOptions
from tests.fork_server import ForkedProcess
from tests.partition.hosts import PORT, Network, listening, network, reason_to_skip
from tests.partition.relay import Relay, relaying
from tests.private_server import Server, private_server

HOSTS = 3
RELAY_PORT = 6432


class HostPool(WorkerPool):
    """Worker processes on hosts of their own. The test itself has a socket that nobody cuts."""

    def __init__(self, url: str, folder: Path, hosts: Network, database: str) -> None:
        super().__init__(url, folder)
        self.hosts = hosts
        self._database = database

    def start_on(self, host: int, *, port: int = PORT, **options: Any) -> int:
        """Start a worker on a host, with the database at a port. Returns its process id."""
        address = self.hosts.server_address(host)
        url = f"postgresql://postgres@{address}:{port}/{self._database}"
        dumped = WorkerOptions(url=url, folder=str(self.folder), **options).dump()
        with open(os.devnull, "r+") as null, open(self.folder / "errors", "a") as errors:
            process = ForkedProcess(
                "tests.partition.worker",
                self.hosts.name(host),
                dumped,
                stdin=null,
                stdout=null,
                stderr=errors,
            )
        self._processes[process.pid] = process
        return process.pid


@pytest.fixture(scope="module")
def hosts() -> Iterator[Network]:
    reason = reason_to_skip()
    if reason is not None and os.geteuid() == 0 and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    with network(HOSTS) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def server(hosts: Network) -> Iterator[Server]:
    with private_server(hosts.database) as server:
        yield server


@pytest.fixture
def pool(
    request: pytest.FixtureRequest, server: Server, hosts: Network, tmp_path: Path
) -> Iterator[HostPool]:
    name = f"case{abs(hash(request.node.name)) % 10**9}"
    server.execute(f"create database {name}")
    server.execute(f"alter database {name} set holdfast.restart_grace = '0s'")
    url = url_of(server.url, name)
    migrate(url)
    with HostPool(url, tmp_path, hosts, name) as pool:
        yield pool
    for host in hosts.hosts:
        hosts.heal(host)


@pytest_asyncio.fixture
async def store(pool: HostPool) -> AsyncIterator[Store]:
    async with open_store(pool.url) as store:
        yield store


@pytest.fixture
def relay(hosts: Network, server: Server) -> Iterator[Relay]:
    """A relay to the database for the first host."""
    address = hosts.server_address(1)
    with relaying(listening(hosts.database, address, RELAY_PORT), server.socket) as relay:
        yield relay
