"""The Channel base class: three members are enough; unusable channels are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.echo import echo
from holdfast.app import AgentHarness
from holdfast.channels.base import Channel, Part, Put, as_channel
from holdfast.errors import HoldfastError
from holdfast.queue.event import Event, NewEvent
from holdfast.queue.outcome import Retry
from holdfast.settings import Settings
from tests.cli.shell import Shell
from tests.steps import finished, running

MESSAGE = {"kind": "message", "channel": "post", "conversation": "post:ada", "sender": "ada"}


class Plain:
    """A channel by its methods alone."""

    name = "post"

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def run(self, put: Put) -> None:
        await put(NewEvent(event=MESSAGE | {"message": "hi"}, message_id="post_1"))

    async def send(self, response: Event) -> None:
        self.sent.append(response.event["message"])


class Derived(Plain, Channel):
    """The same as a Channel."""


@pytest.mark.parametrize("kind", [Plain, Derived])
async def test_name_run_and_send_are_enough(settings: Settings, kind: type[Plain]) -> None:
    channel, app = kind(), AgentHarness(echo)
    app.add_channel(channel)
    async with running(app, settings):
        [response] = await finished(app.store, queue="outbox")
    assert channel.sent == ["you said hi"]
    assert (response.outcome, response.state) == ("completed", None)


async def test_the_turn_of_a_simple_channel_has_the_payload_as_it_was_put(
    settings: Settings,
) -> None:
    payloads: list[object] = []

    async def answer(turn: Any) -> None:
        payloads.append((turn.event, turn.text, await turn.thread(), await turn.files()))

    app = AgentHarness(answer)
    app.add_channel(Derived())
    async with running(app, settings):
        await finished(app.store, queue="inbox")
    assert payloads == [(MESSAGE | {"message": "hi"}, "hi", (), [])]


async def test_the_sender_of_a_dead_letter_gets_a_notice_only_where_the_channel_wants_it(
    settings: Settings,
) -> None:
    class Notified(Derived):
        name = "notified"
        notifies_senders = True

        async def run(self, put: Put) -> None:
            await put(NewEvent(event=MESSAGE | {"message": "hi", "channel": self.name}))

    async def answer(turn: Any) -> Retry:
        return Retry("never")

    app = AgentHarness()
    app.add("agent", answer, max_attempts=1)
    plain, notified = Derived(), Notified()
    app.add_channel(plain)
    app.add_channel(notified)
    async with running(app, settings):
        await finished(app.store, count=2, queue="inbox")
        await finished(app.store, queue="outbox")
    assert plain.sent == []
    assert len(notified.sent) == 1


def test_an_object_that_has_more_than_the_three_must_derive_from_channel() -> None:
    class Splitting(Plain):
        def split(self, response: Event) -> list[Part]:
            return []

    for wrong in (Splitting(), object()):
        with pytest.raises(HoldfastError, match="derive from holdfast"):
            as_channel(wrong)  # type: ignore[arg-type]
        with pytest.raises(HoldfastError, match="derive from holdfast"):
            AgentHarness(echo).add_channel(wrong)  # type: ignore[arg-type]


def test_a_channel_that_can_deliver_nothing_is_refused() -> None:
    class Silent(Channel):
        name = "silent"

        async def run(self, put: Put) -> None:
            await asyncio.Event().wait()

    with pytest.raises(HoldfastError, match="Silent must define send, or split and send_part"):
        AgentHarness(echo).add_channel(Silent())


def test_a_channel_without_a_name_is_refused() -> None:
    class Nameless(Channel):
        async def run(self, put: Put) -> None:
            await asyncio.Event().wait()

    with pytest.raises(HoldfastError, match="the channel Nameless needs a name"):
        AgentHarness(echo).add_channel(Nameless())


def test_doctor_shows_the_checks_of_an_apps_own_channel(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write("my_app.py", CHECKED)
    done = shell.run("doctor", "--app", "my_app:app")
    assert done.returncode == 1
    assert "fail  Pigeon post: no pigeons" in done.stdout


CHECKED = """
from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.channels.base import Channel, Check

class Pigeons(Channel):
    name = "pigeons"

    async def run(self, put):
        return

    async def send(self, response):
        return

    async def check(self):
        return [Check("Pigeon post", "fail", "no pigeons")]

app = AgentHarness(echo)
app.add_channel(Pigeons())
"""
