"""Crash tests run on both stores, with a nursery of workers for the session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from subprocess import Popen

import pytest
import pytest_asyncio

from holdfast.queue.store import Store
from holdfast.store import open_store
from holdfast.testing.servers import Unavailable
from tests.crash import crew as crews
from tests.crash.crew import Crew
from tests.private_server import Server, private_server

GRACE = """
do $$ begin
    execute format('alter database %I set holdfast.restart_grace = ''0s''', current_database());
end $$
"""


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Popen[str]]:
    with crews.nursery() as process:
        yield process


@pytest.fixture
def crew(nursery: Popen[str], database_url: str, tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(nursery, database_url, tmp_path)
    if crew.is_postgres:
        # Our server has only just started, which would spare the dead for half a minute.
        crew.write(GRACE)
    yield crew
    for worker in crew.workers:
        crew.kill_blindly(worker)


@pytest_asyncio.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with open_store(database_url) as store:
        yield store


@pytest.fixture
def server() -> Iterator[Server]:
    try:
        with private_server() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def private_crew(nursery: Popen[str], server: Server, tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(nursery, server.url, tmp_path)
    yield crew
    for worker in crew.workers:
        crew.kill_blindly(worker)
