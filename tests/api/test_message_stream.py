"""The stream of one message, live: over real sockets, with a turn that the test itself works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from bench import event_stream
from bench.event_stream import Frame, Refusal, Stream
from holdfast import AgentHarness, NewEvent
from holdfast.activity.frames import turn_frame
from holdfast.api.limits import Limits
from holdfast.api.security.credentials import Grant, issue, revoke_token
from holdfast.channels.base import response_event
from holdfast.message import Payload
from holdfast.queue.event import INBOX
from holdfast.queue.journal import JournalEntry, Step, Write
from holdfast.queue.outcome import Dead, Done, Outcome
from holdfast.queue.turn import LeasedTurn
from holdfast.settings import Settings
from tests.api.serving import serving, token_of

NAME = "api_1/x"
PATH = f"/api/message/{quote(NAME, safe='')}/stream"


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> AgentHarness:
    return AgentHarness(settings=Settings(home=tmp_path, database=database_url))


@dataclass
class Writer:
    """A turn of an agent that no process serves, so that the test writes its answer."""

    app: AgentHarness
    turn: LeasedTurn
    text: str = ""
    generation: int = 1

    @classmethod
    async def begin(cls, app: AgentHarness, sent_by: str | None = None) -> Writer:
        message: Payload = {"kind": "message", "channel": "api", "sender": "Ada", "message": "hi"}
        new = NewEvent(event=message, target="by hand", message_id=NAME, sent_by=sent_by)
        await app.store.put([new])
        [turn] = await app.store.claim(INBOX, ["by hand"], limit=1, lease=timedelta(minutes=10))
        return cls(app, turn)

    async def write(self, text: str) -> None:
        await self._record(Write(self.generation, len(self.text), text), "response_delta")
        self.text += text

    async def begin_anew(self, text: str) -> None:
        self.generation += 1
        await self._record(Write(self.generation, 0, text), "response_reset")
        self.text = text

    async def step(self, key: str) -> None:
        step = Step(key=key, state="done", attempt=1)
        frame = turn_frame("step_done", self.turn, "by hand", key=key)
        await self.app.store.record(JournalEntry(turn=self.turn, steps=[step], frames=[frame]))

    async def _record(self, write: Write, kind: str) -> None:
        frame = turn_frame(kind, self.turn, "by hand", text=write.text, offset=write.offset)
        await self.app.store.record(JournalEntry(turn=self.turn, write=write, frames=[frame]))

    async def answer(self, text: str | None = None) -> None:
        payload: Payload = {
            "kind": "response",
            "channel": "api",
            "conversation": "api:Ada",
            "sender": "Ada",
            "message": self.text if text is None else text,
        }
        await self.end(Done((response_event(payload),)))

    async def end(self, outcome: Outcome) -> None:
        await self.app.store.settle([(self.turn, outcome)])


def watching(port: int, last_id: str | None = None) -> AbstractAsyncContextManager[Stream]:
    return event_stream.watching(port, path=PATH, last_id=last_id, headers=token_of(port, "read"))


async def frames(stream: Stream) -> AsyncIterator[Frame]:
    """The frames until the server ends the stream, without comments."""
    async with asyncio.timeout(60):
        async for frame in stream.frames():
            if frame.event:
                yield frame


def kind_and_text(frame: Frame) -> tuple[str, str]:
    return frame.event, frame.data.get("text") or frame.data.get("key") or ""


async def test_text_and_steps_are_told_as_they_come(app: AgentHarness) -> None:
    async with serving(app) as port:
        writer = await Writer.begin(app)
        async with watching(port) as stream:
            await writer.write("Hel")
            assert kind_and_text(await stream.next()) == ("response_delta", "Hel")
            await writer.step("look")
            assert kind_and_text(await stream.next()) == ("step_start", "look")
            assert kind_and_text(await stream.next()) == ("step_done", "look")
            await writer.write("lo 😀")
            delta = await stream.next()
            assert (kind_and_text(delta), delta.data["offset"]) == (("response_delta", "lo 😀"), 3)
            await writer.begin_anew("Hi")
            assert kind_and_text(await stream.next()) == ("response_reset", "")
            assert kind_and_text(await stream.next()) == ("response_delta", "Hi")
            await writer.answer("Hi, Ada")
            assert kind_and_text(await stream.next()) == ("response_delta", ", Ada")
            assert kind_and_text(await stream.next()) == ("response_ready", "")
            assert [frame async for frame in frames(stream)] == []
            assert not stream.broke_off


async def test_a_stopped_message_ends_the_stream_with_what_was_said(app: AgentHarness) -> None:
    async with serving(app) as port:
        writer = await Writer.begin(app)
        await writer.write("Hel")
        async with watching(port) as stream:
            assert kind_and_text(await stream.next()) == ("response_delta", "Hel")
            assert await app.store.cancel(writer.turn.primary.id, "enough", leased_only=False)
            end = await stream.next()
            assert (end.event, end.data["error"]) == ("message_failed", "cancelled: enough")


class Restarting:
    """A server that is started anew for every connection, as after a crash."""

    def __init__(self, app: AgentHarness) -> None:
        self._app = app
        self.last_id: str | None = None
        self.text = ""
        self.kinds: list[str] = []

    async def read_one(self) -> None:
        """Read one frame from a server of its own."""
        async with serving(self._app) as port, watching(port, self.last_id) as stream:
            self._take(await stream.next())
            self.last_id = stream.last_id

    def _take(self, frame: Frame) -> None:
        self.kinds.append(frame.event)
        if frame.event == "response_reset":
            self.text = ""
        elif frame.event == "response_delta":
            assert frame.data["offset"] == len(self.text)
            self.text += frame.data["text"]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_client_that_reconnects_at_every_frame_to_a_new_server_has_the_answer(
    app: AgentHarness,
) -> None:
    client = Restarting(app)
    async with serving(app):
        writer = await Writer.begin(app)
        await writer.write("He")
    await client.read_one()
    async with serving(app):
        await writer.write("llo")
        await writer.step("look")
    await client.read_one()
    async with serving(app):
        await writer.begin_anew("Good")
        await writer.write(" day")
        await writer.answer("Good day, Ada")
    while client.kinds[-1] != "response_ready":
        await client.read_one()
    assert client.text == "Good day, Ada"
    assert client.kinds.count("step_start") == client.kinds.count("step_done") == 1
    async with serving(app) as port, watching(port, client.last_id) as stream:
        assert [frame async for frame in frames(stream)] == []


async def test_text_is_streamed_without_any_activity(app: AgentHarness) -> None:
    async with serving(app, limits=Limits(message_poll=timedelta(milliseconds=50))) as port:
        writer = await Writer.begin(app)
        async with watching(port) as stream:
            entry = JournalEntry(turn=writer.turn, write=Write(1, 0, "quietly"))
            await app.store.record(entry)
            assert kind_and_text(await stream.next()) == ("response_delta", "quietly")


async def test_a_quiet_stream_has_comments_and_ends_with_its_server(app: AgentHarness) -> None:
    async with serving(app, limits=Limits(ping_seconds=0.1)) as port:
        await Writer.begin(app)
        async with watching(port) as stream:
            comment = await anext(stream.frames())
            assert (comment.comment, comment.event) == ("still here", "")
            app.stop()
            assert [frame async for frame in frames(stream)] == []


async def test_a_token_that_is_revoked_gets_nothing_more(app: AgentHarness) -> None:
    async with serving(app, limits=Limits(caller_cache_seconds=0.0)) as port:
        grant = Grant(name="ada", role="read")
        secret, _ = await issue(app.store, "token", grant, None)
        writer = await Writer.begin(app)
        given = {"authorization": f"Bearer {secret}"}
        async with event_stream.watching(port, path=PATH, headers=given) as stream:
            await writer.write("Hel")
            assert kind_and_text(await stream.next()) == ("response_delta", "Hel")
            assert await revoke_token(app.store, "ada", "test")
            await writer.write("lo")
            assert [frame async for frame in frames(stream)] == []
        with pytest.raises(Refusal) as refused:
            async with event_stream.watching(port, path=PATH, headers=given):
                pass
        assert refused.value.status == 401


async def test_a_dead_letter_is_the_end(app: AgentHarness) -> None:
    async with serving(app) as port:
        writer = await Writer.begin(app)
        async with watching(port) as stream:
            await writer.end(Dead("no paper"))
            assert kind_and_text(await stream.next()) == ("message_failed", "")
            assert [frame async for frame in frames(stream)] == []
