"""Signs of work, and sending a part once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdfast.agents.turn import Turn
from holdfast.channels.base import Part, response_event
from holdfast.channels.matrix import MatrixChannel
from holdfast.channels.matrix.incoming import redacted_by
from holdfast.queue.event import OUTBOX, Event
from holdfast.settings import Settings
from holdfast.settings.channels.matrix import Matrix
from holdfast.testing.matrix.person import Person
from tests.channels.matrix.test_matrix import sqlite_only
from tests.steps import finished, quick_harness, running, until

pytestmark = sqlite_only


def quickly(settings: Settings, **options: Any) -> dict[str, Any]:
    """Return settings in which signs show at once."""
    table = Matrix(pairing="open", status_after=timedelta(0), **options)
    return {"channels": settings.channels.model_copy(update={"matrix": (table,)})}


async def test_a_reaction_shows_that_an_agent_works_and_is_taken_away(
    settings: Settings, bot: str, ada: Person
) -> None:
    is_seen = asyncio.Event()

    async def slow(turn: Turn) -> str:
        await is_seen.wait()
        return "done"

    async def reactions() -> list[str]:
        events = await ada.events(room)
        gone = {redacted_by(event) for event in events}
        return [
            str(event["content"]["m.relates_to"]["key"])
            for event in events
            if event["type"] == "m.reaction" and event["event_id"] not in gone
            if event["content"]
        ]

    async with running(quick_harness(slow), settings, **quickly(settings)):
        room = await ada.create_room(bot, is_direct=True)
        await ada.say(room, "go")
        assert await until(reactions) == ["👀"]
        is_seen.set()
        await ada.answers(room, bot, 1)

        async def is_gone() -> bool:
            return not await reactions()

        await until(is_gone)


async def test_a_part_that_is_sent_again_is_the_same_message(
    settings: Settings, bot: str, ada: Person
) -> None:
    """kill -9 between send and settle leaves a part as sent and not recorded."""

    async def answer(turn: Turn) -> str:
        return "once"

    async with running(quick_harness(answer), settings, **quickly(settings)) as app:
        room = await ada.create_room(bot, is_direct=True)
        await ada.say(room, "go")
        [response] = await finished(app.store, queue=OUTBOX)
        channel = app.channels["matrix"]
        assert isinstance(channel, MatrixChannel)
        [part] = channel.split(response)
        [receipt] = [one["receipt"] for one in (response.state or {})["parts"].values()]
        assert await _deliver_again(channel, response, part) == receipt
        # A new token does not know the transaction ids of the old one.
        channel.accounts[0].device = "another device"
        note = {"device": "the old one", "at": 0}
        assert await channel.find_part(response, part, note) == receipt
        other = replace(part, key="another key")
        assert await channel.find_part(response, other, note) is None
        assert await ada.answers(room, bot, 1) == ["once"]


async def _deliver_again(channel: MatrixChannel, response: Event, part: Part) -> object:
    note = await channel.prepare_part(response, part)
    assert await channel.find_part(response, part, note) is None
    return await channel.send_part(response, part, note)


async def test_a_person_without_a_room_gets_one_for_a_proactive_message(
    settings: Settings, bot: str, ada: Person
) -> None:
    async with running(quick_harness(lambda turn: None), settings, **quickly(settings)) as app:
        for text in ("first", "second"):
            payload = {"kind": "response", "channel": "matrix", "message": text}
            await app.store.put([response_event(payload | {"sender_id": ada.user})])
        await finished(app.store, 2, queue=OUTBOX)
        synced = await ada.homeserver.sync(None, timedelta(0))
        [room] = synced["rooms"]["invite"]
        await ada.join(room)
        assert sorted(await ada.answers(room, bot, 2)) == ["first", "second"]
