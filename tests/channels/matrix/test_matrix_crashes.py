"""kill -9 of workers and of the homeserver: nothing is lost, nothing is doubled, order is kept."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.channels.matrix.homeserver import open_homeserver
from holdfast.store import open_store
from holdfast.testing.matrix import Synapse, own_synapse
from holdfast.testing.matrix.person import Person
from tests.channels.crashes import kills, process, without_grace
from tests.channels.doomed import (
    AFTER_INSERT,
    AFTER_POSITION,
    AFTER_POST,
    BEFORE_INSERT,
    BEFORE_POST,
    IN_BETWEEN,
    WHILE_WORKING,
    parts_of,
)
from tests.steps import both_engines, finished

POINTS = (
    BEFORE_INSERT,
    AFTER_INSERT,
    AFTER_POSITION,
    WHILE_WORKING,
    BEFORE_POST,
    AFTER_POST,
    IN_BETWEEN,
)
PARTS = parts_of("matrix")


@kills(POINTS, short=[AFTER_POST])
async def test_a_process_that_dies_on_the_way_leaves_exactly_one_answer(
    bot: str, ada: Person, database_url: str, tmp_path: Path, point: str
) -> None:
    without_grace(database_url)
    async with process("matrix", database_url, tmp_path, point) as doomed:
        room = await ada.create_room(bot, is_direct=True)
        await ada.say(room, "hello")
        assert await doomed.death() == -signal.SIGKILL
    async with process("matrix", database_url, tmp_path), open_store(database_url) as store:
        assert await ada.answers(room, bot, 2) == PARTS
        [ended] = await finished(store, queue="outbox")
        # A sign that everything before it was delivered.
        await ada.say(room, "echo last")
        assert await ada.answers(room, bot, 3) == [*PARTS, "last"]
    assert len((ended.state or {})["parts"]) == 2


@asynccontextmanager
async def own_server(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[Synapse, str, Person]]:
    """Yield a server that only this test uses, the bot's user id, and a person."""
    with own_synapse() as server:
        bot, token = server.register(f"bot-{uuid.uuid4().hex[:8]}", "Robot")
        monkeypatch.setenv("MATRIX_HOMESERVER", server.url)
        monkeypatch.setenv("MATRIX_ACCESS_TOKEN", token)
        monkeypatch.setenv("HOLDFAST_PAIRING", "open")
        user, token = server.register("ada", "Ada")
        async with open_homeserver(server.url, token) as homeserver:
            yield server, bot, Person(user, homeserver)


@pytest.mark.chaos
@both_engines
async def test_a_homeserver_that_is_killed_and_started_again_loses_and_doubles_nothing(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with own_server(monkeypatch) as (server, bot, ada):
        room = await ada.create_room(bot, is_direct=True)
        async with process("matrix", database_url, tmp_path):
            wanted = []
            for number in range(5):
                for part in range(4):
                    wanted.append(f"{number}.{part}")
                    await ada.say(room, f"echo {wanted[-1]}")
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(0.5)
                await asyncio.to_thread(server.start)
            assert await ada.answers(room, bot, len(wanted), within=120) == wanted


@pytest.mark.chaos
@both_engines
async def test_workers_that_are_killed_again_and_again_answer_each_message_once_and_in_order(
    bot: str, ada: Person, database_url: str, tmp_path: Path
) -> None:
    room = await ada.create_room(bot, is_direct=True)
    wanted = []
    for number in range(8):
        async with process("matrix", database_url, tmp_path):
            for part in range(5):
                wanted.append(f"{number}.{part}")
                await ada.say(room, f"echo {wanted[-1]}")
            # The end of the block kills it, at any point of its work.
    async with process("matrix", database_url, tmp_path):
        assert await ada.answers(room, bot, len(wanted), within=120) == wanted
