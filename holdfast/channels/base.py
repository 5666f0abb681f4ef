"""The base class of all channels. A channel connects one platform: messages in, responses out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from holdfast.errors import HoldfastError
from holdfast.message import Payload, text_before_routing, text_of
from holdfast.queue.event import OUTBOX, Event, NewEvent

Put = Callable[[NewEvent], Awaitable[int | None]]
"""Stores a message and returns after the commit; only then may a channel acknowledge its platform.

An event that names neither agent nor lane goes to the default agent, in the lane of its
conversation. Returns None if the message is already known."""

Webhook = Callable[[bytes, Mapping[str, str]], Awaitable[tuple[int, str]]]
"""Takes the body and the headers (lower-case names) of a request.

Returns the status and the text of the answer."""

Verification = Callable[[Mapping[str, str]], tuple[int, str]]
"""Takes the query of a GET request by which a platform verifies a webhook.

Returns the status and the text of the answer."""

RESPONSE_ATTEMPTS = 10


class Undeliverable(HoldfastError):
    """The platform refused a response for good. `code` is the platform's own error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code


class NotNow(HoldfastError):
    """The platform took nothing and asks to wait.

    The response is sent later and uses no attempt."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__(f"the platform asks to wait {delay.total_seconds():g} s")
        self.delay = delay


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a response that the platform takes in one request: a text or a file.

    The key is the same whenever the response is split, so that a part can be found again."""

    key: str
    text: str = ""
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An earlier message of a conversation."""

    sender: str
    text: str
    sent_at: datetime | None = None
    is_own: bool = False
    """Whether the bot wrote it."""


class PreviewFence(Protocol):
    """The lease of the turn whose answer is shown. Another worker may have it by now."""

    def hold(self) -> AbstractAsyncContextManager[None]:
        """Cancel the block when the lease runs out. Raises LeaseLost."""

    async def keep(self, note: Payload) -> None:
        """Store a note in the journal, under the fence of the turn. Raises LeaseLost."""


class Preview(ABC):
    """The answer of a turn while it grows, shown as one message that is edited."""

    @abstractmethod
    def show(self, text: str) -> None:
        """Show this text, as soon as the platform's rate limits allow it."""

    @abstractmethod
    async def close(self) -> Payload:
        """End editing, and wait for a request that is under way. Returns the last note.

        An empty note means that nothing was shown."""


class Progress(ABC):
    """A status line about the agent's work, shown in the conversation of the message."""

    @abstractmethod
    def show(self, text: str) -> None:
        """Show this text in place of the one before, as soon as rate limits allow it."""

    @abstractmethod
    def close(self) -> None:
        """Take the line away: the agent has stopped working."""


class Check(NamedTuple):
    """One line of `holdfast doctor`. It contains no token."""

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str


class Channel(ABC):
    """One platform, for messages in and responses out.

    A subclass sets `name` and defines `run`, and either `send`, or `split` with `send_part`.
    Everything else has a default that fits a platform without the feature."""

    name: str
    """Responses with this channel name are delivered here; messages carry it as `turn.channel`."""

    process_id: str = ""
    """Id of the running process, as `Store.processes` lists it; empty in one that only serves HTTP.
    """

    is_internal: bool = False
    """Whether it needs no platform and no settings, such as the channel of schedules."""

    notifies_senders: bool = False
    """Whether this channel tells senders that their message became a dead letter."""

    has_buttons: bool = False
    """Whether it shows the buttons of a response, and so the questions of turns that wait."""

    @abstractmethod
    async def run(self, put: Put) -> None:
        """Receive messages until cancelled. May return at once if nothing ever comes in."""

    async def wait_ready(self) -> None:
        """Return once messages can come in, or once only a person can make that happen."""
        return

    @property
    def webhooks(self) -> Mapping[str, Webhook]:
        """HTTP paths at which the platform calls us.

        Requests have no token: the channel checks signatures."""
        return {}

    @property
    def verifications(self) -> Mapping[str, Verification]:
        """Answers to GET requests at those paths, for platforms that verify a webhook first."""
        return {}

    async def run_webhooks(self, put: Put) -> None:
        """Receive through webhooks alone until cancelled, in a process that only serves HTTP."""
        await self.run(put)

    @property
    def problems(self) -> Sequence[str]:
        """One line for each fault that a person has to fix, or platform that is out of reach.

        Empty while all is well. `/readyz` shows them, and stays 200."""
        return ()

    async def check(self) -> Sequence[Check]:
        """Ask the platform whether the channel could work, for `holdfast doctor`."""
        return ()

    def routing_text(self, payload: Payload) -> str:
        """Return the text by which a message is routed, without asking the platform."""
        return text_before_routing(payload)

    async def readable_text(self, event: Event) -> str:
        """Return the text for the agent, with names instead of the platform's ids."""
        return text_of(event)

    async def fetch_thread(self, payload: Payload) -> Sequence[Line]:
        """Return the earlier messages that the platform keeps of the conversation, oldest first."""
        return ()

    async def fetch_files(self, payload: Payload) -> Sequence[Path]:
        """Download the files of a message. Returns their paths."""
        return ()

    def show_typing(self, payload: Payload, *, again: bool) -> AbstractAsyncContextManager[object]:
        """Show the sender that an agent works on the message, while the block runs.

        `again` is true for a later attempt, which may find the signs of the first one."""
        return nullcontext()

    def open_preview(
        self, draft: Payload, key: str, note: Payload, fence: PreviewFence
    ) -> Preview | None:
        """Prepare to show an answer while it grows; None if the platform cannot edit messages.

        `draft` is the payload of the response without its text, `key` names this preview in every
        attempt, and `note` is the one that an earlier attempt kept, or empty. A response carries
        the last note as its `preview`, and delivering it replaces the text of the preview."""
        return None

    def open_progress(self, draft: Payload, fence: PreviewFence) -> Progress | None:
        """Open the status line of a turn; None if the platform has none."""
        return None

    async def send(self, response: Event) -> None:
        """Deliver a whole response. A crash may make it arrive twice.

        Raises Undeliverable if trying again is useless, NotNow if it is too early."""
        raise NotImplementedError(f"{type(self).__name__} defines neither send nor split")

    def split(self, response: Event) -> Sequence[Part]:
        """Return the parts of a response, always the same ones; no parts means that `send` delivers
        it whole.

        Parts are sent in order. The outbox stores which were sent, so each arrives once."""
        return ()

    async def prepare_part(self, response: Event, part: Part) -> Payload:
        """Do everything that is not visible yet, such as an upload.

        Returns a note for `find_part`."""
        return {}

    async def send_part(self, response: Event, part: Part, note: Payload) -> Payload:
        """Make the part visible.

        Returns the receipt. Undeliverable and NotNow mean that it was not sent."""
        raise NotImplementedError(f"{type(self).__name__} defines split but not send_part")

    async def find_part(self, response: Event, part: Part, note: Payload) -> Payload | None:
        """Look up a part whose sender crashed before it stored the receipt.

        Returns the receipt. None means that the part is not there or the platform cannot tell; then
        it is sent again."""
        return None


class ChannelLike(Protocol):
    """An object with the three parts of a simple channel that does not derive from Channel."""

    name: str

    async def run(self, put: Put) -> None:
        """As Channel.run."""

    async def send(self, response: Event) -> None:
        """As Channel.send."""


class _Adapter(Channel):
    """A ChannelLike as a Channel."""

    def __init__(self, adapted: ChannelLike) -> None:
        self.name = adapted.name
        self._adapted = adapted

    async def run(self, put: Put) -> None:
        await self._adapted.run(put)

    async def send(self, response: Event) -> None:
        await self._adapted.send(response)


def as_channel(given: Channel | ChannelLike) -> Channel:
    """Return the given channel, adapted if it only looks like one.

    Raises HoldfastError if it cannot work."""
    kind = type(given).__name__
    if not isinstance(given, Channel):
        has = {name for name in dir(Channel) if not name.startswith("_") and hasattr(given, name)}
        if {"run", "send"} <= has and hasattr(given, "name") and has <= {"run", "send"}:
            return _Adapter(given)
        raise HoldfastError(f"{kind} is not a channel: derive from holdfast.channels.base.Channel")
    if not isinstance(getattr(given, "name", None), str):
        raise HoldfastError(f"the channel {kind} needs a name")
    if type(given).send is Channel.send and type(given).split is Channel.split:
        raise HoldfastError(f"the channel {kind} must define send, or split and send_part")
    return given


def part_key(response: Event, number: int) -> str:
    """Return the key of a part: the same in every process, and unique over all responses."""
    return f"{response.message_id or 'response'}.{response.id}.{number}"


def response_event(payload: Payload) -> NewEvent:
    """Return a response for its channel, in order per conversation."""
    channel, conversation = payload["channel"], payload.get("conversation")
    lane = f"{channel}/{conversation}" if conversation else None
    return NewEvent(
        event=payload, queue=OUTBOX, target=channel, lane=lane, max_attempts=RESPONSE_ATTEMPTS
    )
