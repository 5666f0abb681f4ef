"""The inbox: a turn goes to its agent, and what the agent answers is the turn's outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType

from holdfast.agents.base import Agent, AgentProfile, Reply
from holdfast.agents.turn import Turn
from holdfast.channels.base import Channel, Line, NotNow
from holdfast.memory.recall import Recall
from holdfast.message import (
    PROFILE,
    ROOM,
    Payload,
    channel_of,
    conversation_of,
    own_workspace,
    sender_of,
    subject_of,
    text_of,
    written_of,
)
from holdfast.queue.event import Event, NewEvent
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Snooze
from holdfast.queue.record import AgentMessage, ChatMessage, Record
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn
from holdfast.routing.handoff import Teamwork
from holdfast.routing.hooks import Hooks
from holdfast.routing.limits import SPENT, stopped
from holdfast.routing.response import response_event

ROOM_BATCH = 100
"""Copies of what was said in a room that are worked together."""
LONGEST_HISTORY = 1000
"""Lines that `turn.history` gives at most."""


@dataclass(frozen=True, slots=True)
class HostedAgent:
    """An agent at work, how long one turn of it may take, and how long it may do so without a sign of work."""

    agent: Agent
    timeout: timedelta | None = None
    idle: timedelta | None = None
    recall: Recall | None = None
    profile: AgentProfile | None = None


class _Limit:
    """The time limits of one turn: in all, and between signs of work."""

    def __init__(self, seat: HostedAgent) -> None:
        self._seat = seat
        self._loop = asyncio.get_running_loop()
        self._latest = (
            None if seat.timeout is None else self._loop.time() + seat.timeout.total_seconds()
        )
        self.timeout = asyncio.timeout_at(self._next())

    def _next(self) -> float | None:
        if self._seat.idle is None:
            return self._latest
        idle_until = self._loop.time() + self._seat.idle.total_seconds()
        return idle_until if self._latest is None else min(idle_until, self._latest)

    def progress(self) -> None:
        self._loop.call_soon_threadsafe(self._extend)

    def _extend(self) -> None:
        # It may have come too late, or after the turn.
        with suppress(RuntimeError):
            self.timeout.reschedule(self._next())

    def reached(self) -> Retry:
        if self._latest is not None and self._loop.time() >= self._latest:
            return Retry(f"no answer within {self._seat.timeout}", error_class="timeout")
        return Retry(f"no sign of work for {self._seat.idle}", error_class="idle")


class Worker:
    """Handles turns of the inbox; '' among the targets stands for the default agent."""

    def __init__(
        self,
        store: Store,
        seats: Mapping[str, HostedAgent],
        default: str,
        hooks: Hooks,
        teamwork: Teamwork,
        channels: Mapping[str, Channel] = MappingProxyType({}),
    ) -> None:
        self._store = store
        self._seats = seats
        self.default = default
        self._hooks = hooks
        self._teamwork = teamwork
        self._channels = channels

    async def handle(self, leased: LeasedTurn) -> Outcome:
        name = leased.primary.target or self.default
        seat = self._seats.get(name)
        if seat is None:
            return Dead(f"no agent named {name!r} runs here", "no_agent")
        if leased.primary.event.get("kind") == ROOM and len(leased.events) == 1:
            await self._store.gather(leased, ROOM_BATCH)
        end = await stopped(self._store, leased)
        if end is not None:
            return end
        turn = Turn(leased, name)
        turn.read_history = partial(self._history, turn)
        return await self._within_limits(seat, turn)

    async def _within_limits(self, seat: HostedAgent, turn: Turn) -> Outcome:
        channel = self._channel(turn)
        if channel is None and seat.timeout is None and seat.idle is None:
            return await self._ask(seat, turn, None)
        limit = _Limit(seat)
        turn.on_progress = limit.progress
        try:
            async with _shown(channel, turn), limit.timeout:
                return await self._ask(seat, turn, channel)
        except TimeoutError:
            if not limit.timeout.expired():
                # The agent's own.
                raise
            return limit.reached()
        except NotNow as wait:
            # The platform was asked for more than it wants to tell now: that is no failure of the agent's.
            return Snooze(wait.delay)

    async def _ask(self, seat: HostedAgent, turn: Turn, channel: Channel | None) -> Outcome:
        heard = await self._hooks.hear(turn if channel is None else await _as_said(channel, turn))
        if not isinstance(heard, Turn):
            return Done(tuple(turn.emitted)) if isinstance(heard, Done) else heard
        if seat.recall is not None:
            await seat.recall.remind(heard)
        answer = await self._hooks.say(heard, await seat.agent.answer(heard))
        if heard is turn:
            return await self._outcome(turn, answer)
        # What is kept of the messages is what was written, not what hooks made of it.
        ids = set(heard.ids)
        as_written = tuple(event for event in turn.events if event.id in ids)
        return await self._outcome(replace(heard, events=as_written), answer)

    async def _history(self, turn: Turn, limit: int) -> Sequence[Line]:
        """The stored conversation of a turn with its agent; empty without a conversation."""
        if not turn.conversation:
            return ()
        own = {event.message_id or str(event.id) for event in turn.events}
        wanted = max(min(limit, LONGEST_HISTORY), 0)
        found = await self._store.agent_messages(
            turn.agent,
            conversation=turn.conversation,
            limit=min(wanted + len(own), LONGEST_HISTORY),
        )
        lines = [line for line in found if line.message_id not in own][:wanted]
        return [_told(line) for line in reversed(lines)]

    def _channel(self, turn: Turn) -> Channel | None:
        """The channel, if it knows the message: what a teammate handed on it never saw."""
        if not self._channels or turn.from_agent is not None:
            return None
        return self._channels.get(turn.channel)

    async def _outcome(self, turn: Turn, answer: object) -> Outcome:
        """An Answer, if the agent keeps to its type; it is a user's own code."""
        match answer:
            case None:
                return Done(tuple(turn.emitted), (*_heard(turn), *turn.records))
            case str():
                return await self._replied(turn, Reply(answer))
            case Reply():
                return await self._replied(turn, answer)
            case Retry() | Snooze() | Dead():
                return answer
            case _:
                kind = type(answer).__name__
                return Retry(
                    f"agent {turn.agent!r} answered {kind} instead of a text", error_class="answer"
                )

    async def _replied(self, turn: Turn, reply: Reply) -> Done:
        """Tags go where they say; what is left is the answer, unless nothing is."""
        shared = await self._teamwork.share(turn, reply)
        records = (*_heard(turn), _said(turn, reply), *shared.lines, *turn.records)
        emits = (*shared.emits, *turn.emitted)
        state = {**(turn.primary.state or {}), SPENT: shared.spent} if shared.spent else None
        if shared.is_for_others_alone:
            return Done(emits, records, state)
        room = turn.event.get("origin_room")
        if room is not None:
            subject = subject_of(turn.event)
            line = ChatMessage(
                team_id=room, from_agent=turn.agent, message=shared.text, subject=subject
            )
            return Done(emits, (*records, line), state)
        answer = replace(reply, text=shared.text, files=shared.files)
        profile = self._seats[turn.agent].profile
        return Done((response(turn, answer, profile), *emits), records, state)


def _shown(channel: Channel | None, turn: Turn) -> AbstractAsyncContextManager[object]:
    """The channel's status, where it has one, while the agent works."""
    return (
        nullcontext()
        if channel is None
        else channel.show_typing(turn.event, again=turn.attempt > 1)
    )


async def _as_said(channel: Channel, turn: Turn) -> Turn:
    """The turn as its agent sees it: what was said to it, and a way to read what was said before."""
    events = tuple([await _with_readable_text(channel, event) for event in turn.events])
    payloads = [event.event for event in events]
    return replace(
        turn,
        events=events,
        read_thread=partial(channel.fetch_thread, turn.event),
        fetch_files=partial(_fetched, channel, payloads),
    )


async def _with_readable_text(channel: Channel, event: Event) -> Event:
    text = await channel.readable_text(event)
    return event if text == text_of(event) else replace(event, routed_text=text)


async def _fetched(channel: Channel, payloads: Sequence[Payload]) -> Sequence[Path]:
    """The files that came with the messages of a turn."""
    return [path for payload in payloads for path in await channel.fetch_files(payload)]


def response(turn: Turn, reply: Reply, profile: AgentProfile | None = None) -> NewEvent:
    """The response to the conversation of the turn; `message_ids` names the messages answered if several."""
    payload: Payload = {
        "kind": "response",
        "channel": turn.channel,
        "conversation": turn.conversation,
        "sender": turn.sender,
        "sender_id": turn.event.get("sender_id" if "kind" in turn.event else "user"),
        "message": reply.text,
        "original_message": turn.event.get("origin_message") or written_of(turn.event),
        "message_id": turn.event.get("origin_id") or turn.message_id,
        "agent": turn.agent,
        **own_workspace(turn.event),
    }
    if profile is not None:
        payload[PROFILE] = asdict(profile)
    if len(answers := turn.answers) > 1:
        payload["message_ids"] = answers
    if reply.files:
        payload["files"] = list(reply.files)
    if metadata := turn.metadata | reply.metadata:
        payload["metadata"] = metadata
    return response_event(payload)


def _told(line: AgentMessage) -> Line:
    is_own = line.role == "assistant"
    return Line(sender=line.sender, text=line.content, said_at=line.created_at, is_own=is_own)


def _heard(turn: Turn) -> tuple[Record, ...]:
    return tuple([_line(turn, event, "user", written_of(event.event)) for event in turn.events])


def _said(turn: Turn, reply: Reply) -> Record:
    return _line(turn, turn.primary, "assistant", reply.text)


def _line(turn: Turn, event: Event, role: str, content: str) -> Record:
    payload = event.event
    return AgentMessage(
        agent_id=turn.agent,
        role=role,
        channel=channel_of(payload),
        sender=sender_of(payload) if role == "user" else turn.agent,
        message_id=(event.message_id if role == "user" else turn.message_id) or str(event.id),
        content=content,
        conversation=conversation_of(payload),
        subject=subject_of(payload),
    )
