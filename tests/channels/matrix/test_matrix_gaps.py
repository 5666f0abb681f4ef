"""Nothing is missed while the bot is away, and nothing is answered twice."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.agents.echo import echo
from holdfast.channels.matrix import MatrixChannel
from holdfast.channels.matrix.access import Limits, access_of
from holdfast.channels.watermark import Watermarks
from holdfast.queue.store import Store
from holdfast.settings import Settings
from holdfast.settings.channels.matrix import Matrix
from holdfast.store import open_store
from holdfast.testing.matrix import Synapse
from holdfast.testing.matrix.person import Person
from holdfast.testing.matrix.proxy import SYNC, FaultyProxy
from tests.channels.matrix.conftest import MakePerson
from tests.channels.matrix.test_matrix import sqlite_only
from tests.steps import both_engines, quick_harness, running, until


def limited(store: Store, **limits: Any) -> MatrixChannel:
    """Return the channel of the environment with other limits than the default ones."""
    return MatrixChannel(
        [replace(access_of(Matrix(), "open"), limits=Limits(**limits))], store=store
    )


async def room_with_an_answer(settings: Settings, bot: str, ada: Person) -> str:
    """Return a room in which the bot has answered and which it has left alone since."""
    async with running(quick_harness(echo), settings):
        room = await ada.create_room(bot, is_direct=True)
        await ada.say(room, "before")
        await ada.answers(room, bot, 1)
    return room


@both_engines
async def test_messages_that_came_while_the_bot_was_away_are_answered_once_and_in_order(
    settings: Settings, bot: str, ada: Person
) -> None:
    room = await room_with_an_answer(settings, bot, ada)
    texts = [str(number) for number in range(9)]
    for text in texts:
        await ada.say(room, text)
    async with open_store(settings.database) as store:
        app = quick_harness(echo)
        # Less than the gap in one sync and in one page, so that several are read.
        app.add_channel(limited(store, timeline=2, page=3))
        async with running(app, settings):
            answers = await ada.answers(room, bot, 10)
        gap = await Watermarks(store, "matrix").last_gap()
    assert answers == [f"you said {text}" for text in ("before", *texts)]
    assert gap is not None
    assert gap.messages == 9


@sqlite_only
async def test_old_messages_and_too_many_are_not_answered_after_a_gap(
    settings: Settings, bot: str, ada: Person
) -> None:
    room = await room_with_an_answer(settings, bot, ada)
    answered = ["you said before"]
    for limits, count in (({"gap_age": timedelta(0)}, 0), ({"gap_messages": 1, "timeline": 1}, 2)):
        for number in range(4):
            await ada.say(room, str(number))
        async with open_store(settings.database) as store:
            app = quick_harness(echo)
            app.add_channel(limited(store, **limits))
            async with running(app, settings):
                await ada.say(room, "new")
                answered += [f"you said {text}" for text in [*["2", "3"][:count], "new"]]
                assert await ada.answers(room, bot, len(answered)) == answered


@sqlite_only
async def test_what_a_person_has_answered_meanwhile_is_left_out_where_the_settings_say_so(
    settings: Settings, bot: str, ada: Person, person: MakePerson
) -> None:
    grace = await person("grace")
    table = Matrix(pairing="open", skip_answered=True)
    channels = settings.channels.model_copy(update={"matrix": (table,)})
    async with running(quick_harness(echo), settings, channels=channels):
        room = await ada.create_room(bot, grace.user)
        await grace.join(room)
        await ada.say(room, "before", mention=bot)
        await ada.answers(room, bot, 1)
    root = await ada.say(room, "answered", mention=bot)
    await grace.say(room, "here you are", thread=root)
    await ada.say(room, "open", mention=bot)
    async with running(quick_harness(echo), settings, channels=channels):
        assert await ada.answers(room, bot, 2) == ["you said before", "you said open"]


@sqlite_only
async def test_a_room_that_the_bot_may_not_read_does_not_stop_the_others(
    settings: Settings,
    bot: str,
    ada: Person,
    synapse: Synapse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = [await room_with_an_answer(settings, bot, ada) for _ in range(2)]
    async with FaultyProxy(synapse.url).open() as proxy:
        monkeypatch.setenv("MATRIX_HOMESERVER", proxy.url)
        members = f"/_matrix/client/v3/rooms/{first}/members"
        proxy.faults.plan(members, "error", times=1000, code="M_FORBIDDEN")
        async with running(quick_harness(echo), settings):
            await ada.say(first, "left out")
            event = await ada.say(second, "hello")
            # The position moves on, so that later messages are not read from here for ever.
            await until(lambda: event in proxy.acknowledged)
            assert await ada.answers(second, bot, 2) == ["you said before", "you said hello"]
    assert proxy.faults.calls[members]


@sqlite_only
async def test_what_came_while_the_homeserver_answered_with_an_error_is_a_gap(
    settings: Settings,
    bot: str,
    ada: Person,
    synapse: Synapse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FaultyProxy(synapse.url).open() as proxy:
        monkeypatch.setenv("MATRIX_HOMESERVER", proxy.url)
        async with running(quick_harness(echo), settings) as app:
            room = await ada.create_room(bot, is_direct=True)
            await ada.say(room, "before")
            await ada.answers(room, bot, 1)
            proxy.faults.plan(SYNC, "status", times=1000, status=500)
            # Ends the poll that waits now.
            await ada.say(room, "at the beginning")
            await until(lambda: proxy.faults.planned[SYNC][0].times < 1000)
            await ada.say(room, "meanwhile")
            del proxy.faults.planned[SYNC]
            await ada.answers(room, bot, 3)
            gap = await until(lambda: Watermarks(app.store, "matrix").last_gap())
    assert gap.messages >= 1


@sqlite_only
async def test_two_processes_of_one_account_answer_each_message_once(
    settings: Settings, bot: str, ada: Person
) -> None:
    async with running(quick_harness(echo), settings), running(quick_harness(echo), settings):
        room = await ada.create_room(bot, is_direct=True)
        texts = [str(number) for number in range(4)]
        for text in texts:
            await ada.say(room, text)
        await ada.answers(room, bot, 4)
        await ada.say(room, "last")
        answers = await ada.answers(room, bot, 5)
    assert answers == [f"you said {text}" for text in (*texts, "last")]
