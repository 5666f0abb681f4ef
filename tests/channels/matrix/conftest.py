"""Fixtures: the channel runs against a real Synapse, which all tests of a run share."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.channels.matrix.homeserver import open_homeserver
from holdfast.settings import Settings
from holdfast.testing.matrix import Synapse
from holdfast.testing.matrix.person import Person
from tests.channels.matrix.servers import run_synapse

MakePerson = Callable[[str], Awaitable[Person]]


@pytest.fixture(scope="session")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    yield from run_synapse(tmp_path_factory)


@pytest_asyncio.fixture
async def person(synapse: Synapse) -> AsyncIterator[MakePerson]:
    """Create people, each with an account of their own."""
    async with AsyncExitStack() as stack:

        async def create(name: str) -> Person:
            user, token = synapse.register(f"{name}-{uuid.uuid4().hex[:8]}", name.title())
            opened = open_homeserver(synapse.url, token)
            return Person(user, await stack.enter_async_context(opened))

        yield create


@pytest.fixture
def bot(synapse: Synapse, monkeypatch: pytest.MonkeyPatch) -> str:
    """The user id of the bot, whose token is in the environment."""
    user, token = synapse.register(f"bot-{uuid.uuid4().hex[:8]}", "Robot")
    monkeypatch.setenv("MATRIX_HOMESERVER", synapse.url)
    monkeypatch.setenv("MATRIX_ACCESS_TOKEN", token)
    monkeypatch.setenv("HOLDFAST_PAIRING", "open")
    return user


@pytest_asyncio.fixture
async def ada(person: MakePerson) -> Person:
    return await person("ada")


@pytest.fixture(autouse=True)
def slack_in_the_environment() -> None:
    """Run without Slack, which other tests of channels have."""


@pytest.fixture
def settings(bot: str, database_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database=database_url)
