"""The inbox consumer: gives each turn to its agent and makes an outcome of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from holdfast.agents.base import Agent, AgentProfile, Answer, Reply
from holdfast.agents.history import pair_answers
from holdfast.agents.journal import SendQuestion, TurnFrames, TurnJournal
from holdfast.agents.turn import Turn
from holdfast.channels.base import Channel, Line, NotNow, response_event
from holdfast.channels.buttons import question
from holdfast.chat import AgentMessage, ChatMessage, ChatStore
from holdfast.consumers.preview import TurnPreview
from holdfast.memory.recall import Recall
from holdfast.message import (
    PREVIEW,
    PROFILE,
    ROOM,
    SCHEDULE,
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
from holdfast.queue.record import Record
from holdfast.queue.turn import LeasedTurn
from holdfast.routing.handoff import Teamwork
from holdfast.routing.hooks import Hooks
from holdfast.routing.limits import SPENT, check_limits
from holdfast.routing.uploads import answer_files, fetch_uploads, uploads_of

ROOM_BATCH = 100
"""Largest number of room lines that are worked in one turn."""
LONGEST_HISTORY = 1000
"""Largest number of lines that `turn.history` returns."""


@dataclass(frozen=True, slots=True)
class HostedAgent:
    """An agent with its time limits: for a whole turn, and between signs of progress."""

    agent: Agent
    timeout: timedelta | None = None
    idle: timedelta | None = None
    recall: Recall | None = None
    profile: AgentProfile | None = None
    leave_lane: bool = False
    """Whether other messages of the lane go on while a turn waits."""


class _Limit:
    """The running time limits of one turn."""

    def __init__(self, hosted: HostedAgent) -> None:
        self._hosted = hosted
        self._loop = asyncio.get_running_loop()
        self._latest = (
            None if hosted.timeout is None else self._loop.time() + hosted.timeout.total_seconds()
        )
        self.timeout = asyncio.timeout_at(self._next())

    def _next(self) -> float | None:
        if self._hosted.idle is None:
            return self._latest
        idle_until = self._loop.time() + self._hosted.idle.total_seconds()
        return idle_until if self._latest is None else min(idle_until, self._latest)

    def progress(self) -> None:
        self._loop.call_soon_threadsafe(self._extend)

    def _extend(self) -> None:
        # The limit may have been reached, or the turn may be over.
        with suppress(RuntimeError):
            self.timeout.reschedule(self._next())

    def to_retry(self) -> Retry:
        timeout, idle = self._hosted.timeout, self._hosted.idle
        if timeout and self._latest is not None and self._loop.time() >= self._latest:
            within = f"{timeout.total_seconds():g} s"
            return Retry(f"no answer within {within}", error_class="timeout")
        assert idle is not None
        return Retry(f"no sign of work for {idle.total_seconds():g} s", error_class="idle")


class Worker:
    """Handles turns of the inbox; '' among the targets stands for the default agent."""

    def __init__(
        self,
        store: ChatStore,
        agents: Mapping[str, HostedAgent],
        default: str,
        hooks: Hooks,
        teamwork: Teamwork,
        channels: Mapping[str, Channel] = MappingProxyType({}),
        files: Path | None = None,
    ) -> None:
        self._store = store
        self._agents = agents
        self.default = default
        self._hooks = hooks
        self._teamwork = teamwork
        self._channels = channels
        self._files = files
        self._visible = {name: teamwork.visible_length(name) for name in agents}
        self.frames: Callable[[LeasedTurn], TurnFrames | None] | None = None
        """Finds the frames of a running turn; None if activity is not recorded."""

    async def handle(self, leased: LeasedTurn) -> Outcome:
        name = leased.primary.target or self.default
        hosted = self._agents.get(name)
        if hosted is None:
            return Dead(f"no agent named {name!r} runs here", "no_agent")
        if leased.primary.event.get("kind") == ROOM and len(leased.events) == 1:
            await self._store.gather(leased, ROOM_BATCH)
        end = await check_limits(self._store, leased)
        if end is not None:
            return end
        journal = TurnJournal(
            self._store,
            leased,
            name,
            self.frames,
            question_sender=self._question_sender,
            leave_lane=hosted.leave_lane,
        )
        journal.visible_length = self._visible[name]
        turn = Turn(leased, name, journal=journal, read_history=self._history)
        return await journal.run(self._within_limits(hosted, turn))

    async def _within_limits(self, hosted: HostedAgent, turn: Turn) -> Outcome:
        channel = self._channel(turn)
        if channel is None and hosted.timeout is None and hosted.idle is None:
            return await self._ask(hosted, turn, None)
        limit = _Limit(hosted)
        turn.on_progress = limit.progress
        try:
            async with _show_typing(channel, turn), limit.timeout:
                return await self._show_and_ask(hosted, turn, channel)
        except TimeoutError:
            if not limit.timeout.expired():
                # A TimeoutError of the agent itself.
                raise
            return limit.to_retry()
        except NotNow as wait:
            # The platform limits its answers now, which is not a failure of the agent.
            return Snooze(wait.delay)

    async def _show_and_ask(
        self, hosted: HostedAgent, turn: Turn, channel: Channel | None
    ) -> Outcome:
        """Ask the agent, and show its growing answer where the channel can edit messages."""
        if channel is None or turn.journal is None:
            return await self._ask(hosted, turn, channel)

        def draft() -> Payload:
            return response(turn, Reply(""), hosted.profile).event

        preview = turn.journal.preview = TurnPreview(channel, turn.journal, draft)
        try:
            return await preview.complete(await self._ask(hosted, turn, channel))
        finally:
            await preview.stop()

    async def _ask(self, hosted: HostedAgent, turn: Turn, channel: Channel | None) -> Outcome:
        readable = turn if channel is None else await _readable_turn(channel, turn)
        given = self._with_uploads(readable)
        if self._hooks.incoming:
            kept = await self._hooks.apply_incoming(given)
            if isinstance(kept, Done):
                return Done(tuple(turn.emitted), _user_lines(turn))
            if not isinstance(kept, Turn):
                return kept
            given = kept
        if hosted.recall is not None:
            await hosted.recall.remind(given)
        answer = await _answer(hosted.agent, given)
        if self._hooks.outgoing:
            answer = await self._hooks.apply_outgoing(given, answer)
        if given is turn:
            return await self._outcome(turn, answer)
        # History keeps the messages as written, not as hooks changed them.
        ids = set(given.ids)
        as_written = tuple(event for event in turn.events if event.id in ids)
        return await self._outcome(replace(given, events=as_written), answer)

    def _with_uploads(self, turn: Turn) -> Turn:
        """Return the turn with access to the uploads that its messages carry."""
        payloads = [event.event for event in turn.events if uploads_of(event.event)]
        if not payloads or self._files is None:
            return turn
        return replace(turn, fetch_files=partial(fetch_uploads, self._files, payloads))

    async def _history(self, turn: Turn, limit: int) -> Sequence[Line]:
        """Return the stored conversation of a turn's agent; empty without a conversation."""
        conversation = conversation_of(turn.leased.primary.event)
        if not conversation:
            return ()
        found = await self._store.agent_messages(
            turn.agent,
            conversation=conversation,
            waiting=False,
            limit=max(min(limit, LONGEST_HISTORY), 0),
        )
        return [_history_line(line) for line in pair_answers(found)]

    def _question_sender(self, message: Event) -> SendQuestion | None:
        """Return a function that sends questions about a message; None without buttons."""
        channel = self._channels.get(channel_of(message.event))
        if channel is None or not channel.has_buttons or not conversation_of(message.event):
            return None

        async def send(name: str, signal: str, text: str, choices: Mapping[str, Any]) -> None:
            await self._store.put([question(message, text, signal, choices, name=name)])

        return send

    def _channel(self, turn: Turn) -> Channel | None:
        """Return the channel of a message; None if a teammate or a schedule sent it."""
        channel = self._channels.get(turn.channel)
        if channel is None or turn.from_agent is not None or SCHEDULE in turn.event:
            return None
        return channel

    async def _outcome(self, turn: Turn, answer: object) -> Outcome:
        """Return the outcome of an answer, whose type a user's agent may get wrong."""
        match answer:
            case None:
                return Done(tuple(turn.emitted), (*_user_lines(turn), *turn.records))
            case str():
                return await self._reply_outcome(turn, Reply(answer))
            case Reply():
                return await self._reply_outcome(turn, answer)
            case Retry() | Snooze() | Dead():
                return answer
            case _:
                kind = type(answer).__name__
                return Retry(
                    f"agent {turn.agent!r} answered {kind} instead of a text", error_class="answer"
                )

    async def _reply_outcome(self, turn: Turn, reply: Reply) -> Done:
        """Follow the tags of a reply. The text outside of them is the response, if there is any."""
        shared = await self._teamwork.parse(turn, reply)
        if turn.journal is not None:
            await turn.journal.finish("" if shared.is_for_others_only else shared.text)
        records = (*_user_lines(turn), _assistant_line(turn, reply), *shared.lines, *turn.records)
        emits = (*shared.emits, *turn.emitted)
        state = {**(turn.primary.state or {}), SPENT: shared.spent} if shared.spent else None
        if shared.is_for_others_only:
            return Done(emits, records, state)
        room = turn.event.get("origin_room")
        if room is not None:
            subject = subject_of(turn.event)
            line = ChatMessage(
                team_id=room, from_agent=turn.agent, message=shared.text, subject=subject
            )
            return Done(emits, (*records, line), state)
        answer = replace(reply, text=shared.text, files=shared.files)
        profile = self._agents[turn.agent].profile
        if answer.files and self._files is not None:
            records = (*records, *await answer_files(self._files, turn, answer.files))
        return Done((response(turn, answer, profile), *emits), records, state)


def _show_typing(channel: Channel | None, turn: Turn) -> AbstractAsyncContextManager[object]:
    """Show on the channel that the agent works, where it can."""
    return (
        nullcontext()
        if channel is None
        else channel.show_typing(turn.event, again=turn.attempt > 1)
    )


async def _answer(agent: Agent, turn: Turn) -> Answer:
    """Return an agent's answer: the text that it wrote, then the text that it returned."""
    if turn.journal is not None:
        turn.journal.turn = turn
    answer, written = await agent.answer(turn), turn.written_text
    if not written:
        return answer
    match answer:
        case None:
            return written
        case str():
            return written + answer
        case Reply():
            return replace(answer, text=written + answer.text)
        case _:
            return answer


async def _readable_turn(channel: Channel, turn: Turn) -> Turn:
    """Return the turn with readable texts and with access to the thread and files."""
    events = tuple([await _with_readable_text(channel, event) for event in turn.events])
    payloads = [event.event for event in events]
    return replace(
        turn,
        events=events,
        read_thread=partial(channel.fetch_thread, turn.event),
        fetch_files=partial(_fetch_files, channel, payloads),
    )


async def _with_readable_text(channel: Channel, event: Event) -> Event:
    text = await channel.readable_text(event)
    return event if text == text_of(event) else replace(event, routed_text=text)


async def _fetch_files(channel: Channel, payloads: Sequence[Payload]) -> Sequence[Path]:
    """Fetch the files that came with the messages of a turn. Returns their paths."""
    return [path for payload in payloads for path in await channel.fetch_files(payload)]


def response(
    turn: Turn,
    reply: Reply,
    profile: AgentProfile | None = None,
    preview: Payload | None = None,
) -> NewEvent:
    """Build the response to a turn; `message_ids` names the answered messages if several.

    `preview` is the note of the message that shows the growing answer: the response replaces it."""
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
    if preview:
        payload[PREVIEW] = preview
    if len(answers := turn.answers) > 1:
        payload["message_ids"] = answers
    if reply.files:
        payload["files"] = list(reply.files)
    if metadata := turn.metadata | reply.metadata:
        payload["metadata"] = metadata
    return response_event(payload)


def _history_line(line: AgentMessage) -> Line:
    is_own = line.role == "assistant"
    return Line(sender=line.sender, text=line.content, sent_at=line.created_at, is_own=is_own)


def _user_lines(turn: Turn) -> tuple[Record, ...]:
    return tuple([_user_line(turn, event) for event in turn.events])


def _user_line(turn: Turn, event: Event) -> Record:
    payload = event.event
    return AgentMessage(
        agent_id=turn.agent,
        role="user",
        channel=channel_of(payload),
        sender=sender_of(payload),
        message_id=event.message_id or str(event.id),
        content=written_of(payload),
        conversation=conversation_of(payload),
        subject=subject_of(payload),
        origin=str(payload.get("origin_id") or ""),
        event_id=event.id,
        created_at=event.created_at,
    )


def _assistant_line(turn: Turn, reply: Reply) -> Record:
    payload = turn.event
    return AgentMessage(
        agent_id=turn.agent,
        role="assistant",
        channel=channel_of(payload),
        sender=turn.agent,
        message_id=turn.message_id or str(turn.primary.id),
        content=reply.text,
        conversation=conversation_of(payload),
        subject=subject_of(payload),
        origin=str(payload.get("origin_id") or ""),
    )
