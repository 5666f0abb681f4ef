"""A channel is a way in and out: it receives messages from a platform and delivers responses to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.event import Event, NewEvent

Put = Callable[[NewEvent], Awaitable[int | None]]
"""Stores a message and returns after commit: only then may a channel acknowledge its platform. An event that names
neither agent nor lane goes to the default agent, in the lane of its conversation."""


class Undeliverable(HoldfastError):
    """The platform will never take this response; `code` is what it said."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code


class NotNow(HoldfastError):
    """The platform took nothing and asks for patience; the response waits and no attempt is used."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__(f"the platform asks to wait {delay.total_seconds():g} s")
        self.delay = delay


class Channel(Protocol):
    """A platform that takes a response whole. What it took before a crash it may be given once more."""

    name: str

    async def run(self, put: Put) -> None:
        """Receive until cancelled."""

    async def send(self, response: Event) -> None:
        """Deliver one response; raise Undeliverable where trying again is useless, NotNow where it is too early."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a response that the platform takes at once, a text or a file, under a key of its own."""

    key: str
    text: str = ""
    file: str | None = None


@runtime_checkable
class InParts(Protocol):
    """A platform that takes a response part by part and can be asked whether it has one: each is delivered once.

    Delivery keeps the progress; a channel only has to do these steps."""

    name: str

    async def run(self, put: Put) -> None:
        """Receive until cancelled."""

    def split(self, response: Event) -> Sequence[Part]:
        """The parts of a response, the same ones whenever it is asked."""

    async def prepare(self, response: Event, part: Part) -> Payload:
        """What can be done before anything is visible; returns what `find` will need to know."""

    async def post(self, response: Event, part: Part, note: Payload) -> Payload:
        """Make the part visible; returns the receipt. Undeliverable and NotNow say that it is not there."""

    async def find(self, response: Event, part: Part, note: Payload) -> Payload | None:
        """The receipt of a part that may have been posted by someone who did not live to write it down."""


AnyChannel = Channel | InParts


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What somebody said earlier in the conversation, as the platform keeps it."""

    sender: str
    text: str
    said_at: datetime | None = None
    is_own: bool = False
    """Whether it was the bot that said it."""


@runtime_checkable
class Attentive(Protocol):
    """A platform that has more to say of a message, and can show that an agent works on it."""

    def heard(self, payload: Payload) -> str:
        """What was said to the agent, as far as it is known without asking: messages are routed by it."""

    async def readable(self, payload: Payload) -> str:
        """What its agent is to read: the same with names for ids, as far as the platform tells them."""

    async def thread(self, payload: Payload) -> Sequence[Line]:
        """What was said before in its conversation, oldest first."""

    async def fetch(self, payload: Payload) -> Sequence[Path]:
        """The files that came with it, where they can be read now."""

    def working(self, payload: Payload, *, again: bool) -> AbstractAsyncContextManager[object]:
        """Shows that the message is being worked on, while the block runs; `again` if it was before."""


Webhook = Callable[[bytes, Mapping[str, str]], Awaitable[tuple[int, str]]]
"""Takes the body and the headers (in lower case) of a request; gives the status and the text of its answer."""


@runtime_checkable
class Webhooks(Protocol):
    """A platform that calls us by HTTP. Nobody checks such a request but the channel itself."""

    @property
    def webhooks(self) -> Mapping[str, Webhook]:
        """By their paths."""

    async def attend(self, put: Put) -> None:
        """Take what comes there and nothing else, until cancelled: who only answers HTTP delivers nothing."""


@runtime_checkable
class Opening(Protocol):
    """A platform that hears us only some time after `run` or `attend` began."""

    async def opened(self) -> None:
        """Returns once messages can come in, or a person is needed for that."""


@runtime_checkable
class Ailing(Protocol):
    """A platform of which a part may not work until a person does something about it."""

    @property
    def problems(self) -> Sequence[str]:
        """A line for each; none while all is well."""


def attentive(channel: object) -> Attentive | None:
    kind = type(channel)
    # Asked for every turn, and to compare a class with a protocol takes longer than all else of a turn.
    if kind not in _attentive:
        _attentive[kind] = issubclass(kind, Attentive)
    return cast(Attentive, channel) if _attentive[kind] else None


_attentive: dict[type, bool] = {}


def part_key(response: Event, number: int) -> str:
    """The same for the same part of the same response, in whatever process, and no other's."""
    return f"{response.message_id or 'response'}.{response.id}.{number}"
