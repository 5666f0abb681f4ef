"""The turn that an agent is given: a message, and ways to answer it, built around a leased turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.agents.call import RUNNING, Effect, StepOptions
from holdfast.agents.journal import CURRENT, TurnJournal
from holdfast.errors import StepError
from holdfast.memory import NO_MEMORY, Memory
from holdfast.message import (
    ROOM,
    Payload,
    channel_of,
    conversation_of,
    sender_id_of,
    sender_of,
    team_of,
    text_of,
)
from holdfast.queue.event import Event, NewEvent
from holdfast.queue.record import Record
from holdfast.queue.turn import LeasedTurn
from holdfast.settings import DurationLike

if TYPE_CHECKING:
    from holdfast.channels.base import Line

T = TypeVar("T")

HANDOFF = "handoff"
"""Payload key of a message that an agent handed on: the frame around its text."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """The frame of a message that a teammate handed on."""

    from_agent: str
    shared: str = ""
    """The teammate's text outside of all tags, which every teammate it named gets."""

    def frame(self, text: str) -> str:
        """Return the text as a prompt: its sender, the shared text, and the text itself."""
        body = f"{self.shared}\n\nDirected to you:\n{text}" if self.shared else text
        return f"[Message from teammate @{self.from_agent}]\n{body}"


def handoff_of(payload: Payload) -> Handoff | None:
    """Return the frame of a message that was handed on, None if a person wrote it."""
    frame = payload.get(HANDOFF)
    return None if frame is None else Handoff(payload.get("from_agent") or "", frame["shared"])


def prompt_text(event: Event) -> str:
    """Return the text of a message for a prompt, with the frame of a hand-off."""
    handoff = handoff_of(event.event)
    return text_of(event) if handoff is None else handoff.frame(text_of(event))


@dataclass(slots=True, eq=False)
class Turn:
    """A message for an agent, or several that it answers together.

    The inbox consumer builds it around the turn that it leased. `emit`, `metadata` and
    `memory.observe` take effect when the turn ends, in one transaction. A turn that fails leaves
    nothing of them."""

    leased: LeasedTurn
    """The turn as the store knows it: its events as they are stored, and the fence."""
    agent: str
    events: tuple[Event, ...] = ()
    """The messages as the agent reads them: with names for ids, and changed by hooks."""
    emitted: list[NewEvent] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    """Rows to keep beside the events, in the transaction that ends the turn."""
    memory: Memory = NO_MEMORY
    """The agent's memory; without `memory=True` every use of it is refused."""
    metadata: Payload = field(default_factory=dict)
    """Data that hooks and the agent add; it goes with the reply."""
    journal: TurnJournal | None = None
    """Steps, waits and the stream of the answer; None outside of a running turn."""
    on_progress: Callable[[], None] | None = None
    read_thread: Callable[[], Awaitable[Sequence[Line]]] | None = None
    fetch_files: Callable[[], Awaitable[Sequence[Path]]] | None = None
    # Gets the turn as an argument: bound to it, it would be a reference cycle.
    read_history: Callable[[Turn, int], Awaitable[Sequence[Line]]] | None = None

    def __post_init__(self) -> None:
        self.events = self.events or self.leased.events

    @property
    def primary(self) -> Event:
        """The first message."""
        return self.events[0]

    @property
    def ids(self) -> list[int]:
        """Event ids of the messages."""
        return [event.id for event in self.events]

    @property
    def event(self) -> Payload:
        """The payload of the first message, as its platform sent it."""
        return self.primary.event

    @property
    def is_room_batch(self) -> bool:
        """Whether it is several lines of a team's room, worked together."""
        return len(self.events) > 1 and all(
            event.event.get("kind") == ROOM for event in self.events
        )

    @property
    def text(self) -> str:
        """The text for the agent, without the prefix that named it."""
        if self.is_room_batch:
            return "\n\n".join(text_of(event) for event in self.events)
        return text_of(self.primary)

    @property
    def team(self) -> str | None:
        """The team by which the message was routed."""
        return team_of(self.primary)

    @property
    def from_agent(self) -> str | None:
        """The agent that handed the message on, None if a person wrote it."""
        return self.event.get("from_agent")

    @property
    def handoff(self) -> Handoff | None:
        """The frame in which a teammate handed the message on, None if a person wrote it."""
        return handoff_of(self.event)

    @property
    def message_id(self) -> str | None:
        """The id of the message, as the API and the platform know it."""
        first = self.primary.message_id
        return f"chatroom_batch_{first or self.primary.id}" if self.is_room_batch else first

    @property
    def answers(self) -> list[str]:
        """Ids of all messages that a reply to this turn answers, as their senders know them."""
        ids = [event.event.get("origin_ids") or [_origin_id(event)] for event in self.events]
        return list(dict.fromkeys(str(id_) for own in ids for id_ in own if id_ is not None))

    @property
    def channel(self) -> str:
        """The channel the message came by."""
        return channel_of(self.event)

    @property
    def conversation(self) -> str:
        """The conversation on that channel, '' if there is none."""
        return conversation_of(self.event)

    @property
    def sender(self) -> str:
        """The sender's name; on Slack their id."""
        return sender_of(self.event)

    @property
    def sender_id(self) -> str | None:
        """The sender's id on the channel; None if the channel gave only a name."""
        return sender_id_of(self.event)

    @property
    def attempt(self) -> int:
        """Number of the running attempt, 1 for the first."""
        return self.leased.attempt

    def emit(self, new: NewEvent) -> None:
        """Add an event, stored in the transaction that ends this turn, or not at all.

        Raises StepError inside of a step: a later attempt does not run it and would lose the
        event."""
        if (step := RUNNING.get()) is not None:
            raise StepError(
                f"step {step.key!r} adds an event to its turn, which a later attempt would lose:"
                " call turn.emit or memory.observe outside of steps"
            )
        self.emitted.append(new)

    async def thread(self) -> Sequence[Line]:
        """Return the conversation so far from the platform, oldest first.

        Returns nothing if the platform cannot be asked."""
        return () if self.read_thread is None else await self.read_thread()

    async def history(self, limit: int = 50) -> Sequence[Line]:
        """Return the newest stored lines of the conversation, oldest first, without this turn's.

        At most `limit` lines, and never more than 1,000."""
        return () if self.read_history is None else await self.read_history(self, limit)

    async def files(self) -> Sequence[Path]:
        """Fetch the files that came with the messages into the folder of their conversation."""
        return () if self.fetch_files is None else await self.fetch_files()

    @property
    def written_text(self) -> str:
        """The text of the answer that this attempt has written so far."""
        is_used = self.journal is not None and self.journal.uses("stream")
        return self.journal.stream.text if self.journal is not None and is_used else ""

    @property
    def in_step(self) -> bool:
        """Whether this code runs inside of a step."""
        return RUNNING.get() is not None

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        effect: Effect | None = None,
        probe: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        effect: Effect | None = None,
        probe: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, T]: ...

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        effect: Effect | None = None,
        probe: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Run a function once for this message: later attempts get the recorded result.

        A plain function runs in a thread. The result is restored as the annotated type, else it is
        plain JSON. With `effect="once"` the start is recorded before the call, so that it is never
        repeated blindly: `probe` tells whether it happened."""
        is_given = effect is not None or probe is not None
        options = StepOptions(effect or "repeatable", probe) if is_given else None
        return self._own_journal(f"step {name!r}").steps.call(
            name, function, args, kwargs, options=options
        )

    async def sleep(self, until: DurationLike | datetime) -> None:
        """Wait for a duration or until a moment, even over restarts, without holding a slot.

        The turn runs again from its beginning, with its recorded steps."""
        await self._own_journal("turn.sleep").waits.sleep(until)

    async def signal(
        self,
        name: str,
        timeout: DurationLike | None = None,  # noqa: ASYNC109 - it lasts longer than the process
        *,
        prompt: str | None = None,
        options: Mapping[str, Any] | Sequence[str] = (),
    ) -> Any:
        """Wait for a signal, without holding a slot. Returns its value.

        Pages show the prompt with a button for each option, whose value is the signal's; so do
        Slack, Discord and Telegram, in the conversation of the message. Raises TimeoutError once
        the timeout has passed."""
        waits = self._own_journal("turn.signal").waits
        return await waits.signal(name, timeout, prompt, options)

    async def write(self, text: str) -> None:
        """Add text to the answer, which is kept and shown while the agent works on."""
        await self._own_journal("turn.write").stream.write(text)

    def progress(self, text: str | None = None) -> None:
        """Restart the agent's idle time limit: work goes on. Callable from any thread.

        A text is shown to those who wait."""
        if self.on_progress is not None:
            self.on_progress()
        if text is not None and self.journal is not None:
            self.journal.note_progress(text)

    def _own_journal(self, what: str) -> TurnJournal:
        if self.journal is None:
            raise StepError(f"{what} works in a running turn only")
        return self.journal


def current_turn() -> Turn | None:
    """Return the turn that runs here; None outside of the agent's code."""
    journal = CURRENT.get()
    return None if journal is None or journal.has_ended else journal.turn


def _origin_id(event: Event) -> str | None:
    """Return the id of the message that a person sent, even if agents made this one from it."""
    return event.event.get("origin_id") or event.message_id
