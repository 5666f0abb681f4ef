"""Invitations, strangers and refused tokens."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import pytest

from holdfast.agents.echo import echo
from holdfast.channels.matrix import MatrixChannel
from holdfast.channels.matrix.access import access_of
from holdfast.channels.matrix.errors import Unreachable
from holdfast.queue.event import NewEvent
from holdfast.queue.store import Store
from holdfast.settings import Settings
from holdfast.settings.channels.matrix import Matrix
from holdfast.store.pairing import open_pairings
from holdfast.telemetry import CHANNEL_REFUSED
from holdfast.telemetry.redaction import redact
from holdfast.testing.matrix import Synapse
from holdfast.testing.matrix.person import Person
from tests.channels.matrix.conftest import MakePerson
from tests.channels.matrix.test_matrix import sqlite_only
from tests.steps import quick_harness, running, until

pytestmark = sqlite_only


async def membership(person: Person, room: str, user: str) -> str:
    return str((await person.homeserver.member(room, user))["membership"])


async def test_the_room_invitation_of_a_stranger_is_refused_and_of_an_allowed_person_accepted(
    settings: Settings, bot: str, ada: Person, person: MakePerson
) -> None:
    mallory = await person("mallory")
    options = by_code(settings, allow=(ada.user,))
    async with running(quick_harness(echo), settings, **options) as app:
        strange = await mallory.create_room(bot)
        await until(lambda: _is(mallory, strange, bot, "leave"))
        room = await ada.create_room(bot)
        await until(lambda: _is(ada, room, bot, "join"))
        assert await open_pairings(app.store).requests() == []


async def test_a_stranger_is_told_a_code_and_answered_after_the_approval(
    settings: Settings, bot: str, ada: Person
) -> None:
    async with running(quick_harness(echo), settings, **by_code(settings)) as app:
        room = await ada.create_room(bot, is_direct=True)
        await ada.say(room, "too early")
        [notice] = await ada.answers(room, bot, 1)
        pairings = open_pairings(app.store)
        [request] = await pairings.requests()
        assert request.code is not None
        assert request.code in notice
        assert await app.store.counts() == []
        await pairings.approve(request.code)
        await ada.say(room, "hello")
        assert await ada.answers(room, bot, 2) == [notice, "you said hello"]
        # Now the person may invite the bot to rooms.
        other = await ada.create_room(bot)
        await until(lambda: _is(ada, other, bot, "join"))


def by_code(settings: Settings, **options: Any) -> dict[str, Any]:
    table = Matrix(pairing="code", **options)
    return {"channels": settings.channels.model_copy(update={"matrix": (table,)})}


async def _is(person: Person, room: str, user: str, wanted: str) -> bool:
    return await membership(person, room, user) == wanted


async def test_a_closed_channel_stores_nothing_of_strangers(
    settings: Settings, bot: str, ada: Person
) -> None:
    table = Matrix(pairing="closed")
    channels = settings.channels.model_copy(update={"matrix": (table,)})
    async with running(quick_harness(echo), settings, channels=channels) as app:
        room = await ada.create_room(bot, is_direct=True)
        await until(lambda: _is(ada, room, bot, "leave"))
        assert await app.store.counts() == []


async def test_a_refused_token_is_a_problem_and_others_go_on(
    settings: Settings,
    bot: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MATRIX_ACCESS_TOKEN", "syt_wrong")
    async with running(quick_harness(echo), settings) as app:
        [problem] = [redact(one) for one in app.channels["matrix"].problems]
        assert "MATRIX_ACCESS_TOKEN" in problem
        assert "M_UNKNOWN_TOKEN" in problem
        assert await app.put("hello") is not None
        [line] = await app.channels["matrix"].check()
        assert line.state == "fail"
        assert "M_UNKNOWN_TOKEN" in line.detail
    assert "M_UNKNOWN_TOKEN" in caplog.text
    lines = [one for one in caplog.records if CHANNEL_REFUSED in one.getMessage()]
    assert [one.levelno for one in lines] == [logging.ERROR]
    assert "syt_wrong" not in caplog.text + problem + line.detail


async def test_a_token_that_is_revoked_stops_the_account_and_keeps_its_responses(
    settings: Settings, bot: str, ada: Person, synapse: Synapse
) -> None:
    go_on = asyncio.Event()

    async def slow(turn: object) -> str:
        await go_on.wait()
        return "kept"

    async with running(quick_harness(slow), settings) as app:
        room = await ada.create_room(bot, is_direct=True)
        await ada.say(room, "hello")
        channel = app.channels["matrix"]
        assert isinstance(channel, MatrixChannel)
        await until(lambda: app.consumers[0].running)
        # Synapse may close the connection before it answers.
        with suppress(Unreachable):
            await channel.accounts[0].homeserver.post("logout")
        await until(lambda: channel.problems)
        go_on.set()
        [response] = await until(lambda: app.store.waiting("outbox", "matrix"))
        await until(lambda: _is_snoozed(app.store, response.id))
        assert await ada.messages(room, bot) == []


async def _is_snoozed(store: Store, event_id: int) -> bool:
    found = await store.live(event_id)
    assert found is not None
    return found.attempts == 0 and found.vt > await store.now()


async def test_a_homeserver_that_is_away_is_named_and_tried_again(
    settings: Settings, bot: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATRIX_HOMESERVER", "http://127.0.0.1:9")
    channel = MatrixChannel([access_of(Matrix(), "open")], store=store)

    async def put(new: NewEvent) -> int | None:
        raise AssertionError("nothing comes in")

    task = asyncio.ensure_future(channel.run(put))
    [problem] = await until(lambda: channel.problems)
    assert "http://127.0.0.1:9 cannot be reached, will try again" in problem
    assert channel.accounts[0].problem is None
    [line] = await channel.check()
    assert "cannot be reached" in line.detail
    task.cancel()
    await asyncio.wait([task])


async def test_doctor_names_the_bot_and_its_rooms(
    settings: Settings, bot: str, ada: Person, store: Store
) -> None:
    channel = MatrixChannel([access_of(Matrix(), "open")], store=store)
    lines = [(line.state, line.detail) for line in await channel.check()]
    assert lines[0] == ("ok", f"the bot is {bot}")
    assert lines[1][0] == "warn"
