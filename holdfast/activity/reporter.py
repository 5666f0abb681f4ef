"""What happens to messages, told to whoever watches: a start soon after it, an end with the commit that stores it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import assert_never

from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.event import INBOX, OUTBOX, NewEvent, payload_to_show
from holdfast.queue.outcome import Dead, Done, Lost, Outcome, Retry, Settled, Snooze
from holdfast.queue.record import Activity, AgentMessage, Record
from holdfast.queue.store import Process, Store, Transaction
from holdfast.queue.turn import LeasedTurn
from holdfast.store.activity import SUBJECT, about, received
from holdfast.telemetry import ACTIVITY_WRITE_FAILED, LISTENER_FAILED, LISTENERS_TOO_SLOW
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

Handler = Callable[[LeasedTurn], Awaitable[Outcome]]

SETTING = "activity"
"""Under this key the store finds whether to note anything."""

LAST_WORDS = timedelta(seconds=1)
"""For listeners to hear the rest when the harness stops."""

LOOK_AGAIN = timedelta(seconds=2)
"""How soon a worker notices that the first API was started."""

GATHER = timedelta(milliseconds=50)
"""Starts wait this long for each other; a turn that ends sooner tells both in one go."""


TYPES = (
    "message_received",
    "agent_routed",
    "chain_step_start",
    "chain_step_done",
    "chain_handoff",
    "response_ready",
    "message_failed",
    "processor_start",
)
BACKLOG = 10_000
"""Frames that wait for listeners; what comes beyond is not told to them."""

Listener = Callable[[Payload], object]


class Listeners:
    """Functions of the app that hear what happens in this process, one frame after the other, after it did."""

    def __init__(self) -> None:
        self._of: dict[str, list[Listener]] = {}
        self._waiting: asyncio.Queue[Payload] = asyncio.Queue(BACKLOG)

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, kind: str, listener: Listener) -> None:
        if kind not in TYPES:
            raise HoldfastError(f"there is no event named {kind!r}; known are: {', '.join(TYPES)}")
        self._of.setdefault(kind, []).append(listener)

    def tell(self, frame: Payload) -> None:
        if frame["type"] not in self._of:
            return
        told = {"type": frame["type"], "timestamp": time.time_ns() // 1_000_000} | frame
        told.pop(SUBJECT, None)
        try:
            self._waiting.put_nowait(told)
        except asyncio.QueueFull:
            log.warning(Entry(LISTENERS_TOO_SLOW, type=frame["type"]))

    async def run(self) -> None:
        while True:
            frame = await self._waiting.get()
            for listener in self._of[frame["type"]]:
                await self._call(listener, dict(frame))
            self._waiting.task_done()

    async def heard(self, within: timedelta = LAST_WORDS) -> None:
        """Until all were told what happened so far; not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                await self._waiting.join()

    async def _call(self, listener: Listener, frame: Payload) -> None:
        try:
            is_async = inspect.iscoroutinefunction(listener)
            told = listener(frame) if is_async else await asyncio.to_thread(listener, frame)
            if inspect.isawaitable(told):
                await told
        except Exception:
            log.exception(Entry(LISTENER_FAILED, type=frame["type"]))


@dataclass(slots=True, eq=False)
class _Starts:
    """Turns that began at about the same time; once taken, they are on their way to the store."""

    frames: dict[int, Payload] = field(default_factory=dict)
    is_taken: bool = False
    is_written: asyncio.Event = field(default_factory=asyncio.Event)


class Reporter:
    """Stands around the handler of the inbox. Nothing that goes wrong here is the turn's."""

    def __init__(self, store: Store, handler: Handler, default: str, listeners: Listeners) -> None:
        self._store = store
        self._handler = handler
        self.default = default
        self._listeners = listeners
        self._starts = _Starts()
        self._has_starts = asyncio.Event()
        self._hurry = asyncio.Event()
        self._is_on = False
        self._look_at = 0.0

    async def look(self) -> None:
        """Whether anybody could read it: an API has been there, here or in another process."""
        self._look_at = asyncio.get_running_loop().time() + LOOK_AGAIN.total_seconds()
        with suppress(HoldfastError):
            self._is_on = bool(await self._store.setting(SETTING))

    async def handle(self, turn: LeasedTurn) -> Outcome:
        if asyncio.get_running_loop().time() > self._look_at:
            await self.look()
        if not self._is_on and not self._listeners:
            return await self._handler(turn)
        starts, started = self._starts, self._started(turn)
        starts.frames[turn.fence] = started
        self._has_starts.set()
        self._listeners.tell(started)
        try:
            outcome = await self._handler(turn)
        except asyncio.CancelledError:
            starts.frames.pop(turn.fence, None)
            raise
        except BaseException:
            await self._written(starts)
            raise
        if isinstance(outcome, Done):
            return await self._done(turn, outcome, starts)
        # The store itself tells how it failed: it knows whether an attempt is left.
        await self._written(starts)
        return outcome

    async def run(self) -> None:
        """Writes starts; belongs in the owner's TaskGroup for as long as turns are handled."""
        while True:
            await self._has_starts.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(GATHER.total_seconds()):
                    await self._hurry.wait()
            self._has_starts.clear()
            self._hurry.clear()
            taken, self._starts = self._starts, _Starts()
            taken.is_taken = True
            if taken.frames:
                await self._write(tuple(taken.frames.values()))
            taken.is_written.set()

    async def _write(self, frames: tuple[Payload, ...]) -> None:
        try:
            await self._store.put([], records=[Activity(frames)])
        except HoldfastError as error:
            # Not again: it may have been stored all the same.
            log.warning(Entry(ACTIVITY_WRITE_FAILED, error=error))

    async def _written(self, starts: _Starts) -> None:
        """Until a start is stored, so that what follows from it comes after it."""
        if not starts.is_taken:
            self._hurry.set()
        await starts.is_written.wait()

    async def _done(self, turn: LeasedTurn, outcome: Done, starts: _Starts) -> Done:
        frames = tuple(done_frames(turn, self._agent(turn), outcome))
        if starts.is_taken:
            await self._written(starts)
        else:
            frames = (starts.frames.pop(turn.fence), *frames)
        return Done(outcome.emits, (*outcome.records, Activity(frames)), outcome.state)

    def ended(self, turn: LeasedTurn, outcome: Outcome, result: Settled | Lost) -> None:
        """The listeners of this process hear of an end once it is stored."""
        if not self._listeners or isinstance(result, Lost):
            return
        match outcome:
            case Done(_, records):
                told = [
                    one for line in records if isinstance(line, Activity) for one in line.frames
                ]
                for one in told:
                    if one["type"] != "chain_step_start":
                        self._listeners.tell(one)
            case Retry() | Dead():
                error = outcome.error if isinstance(outcome, Retry) else outcome.reason
                self._listeners.tell(
                    frame(
                        "message_failed",
                        turn,
                        self._agent(turn),
                        error=error,
                        dead=result.ended == "dead",
                    )
                )
            case Snooze():
                pass
            case _:
                assert_never(outcome)

    def _agent(self, turn: LeasedTurn) -> str:
        return turn.primary.target or self.default

    def _started(self, turn: LeasedTurn) -> Payload:
        began_at = int(turn.primary.claimed[-1].timestamp() * 1000)
        agent = self._agent(turn)
        return frame("chain_step_start", turn, agent, timestamp=began_at, attempt=turn.attempt)


def done_frames(turn: LeasedTurn, agent: str, outcome: Done) -> Iterator[Payload]:
    said = [
        line.content
        for line in outcome.records
        if isinstance(line, AgentMessage) and line.role == "assistant"
    ]
    yield frame("chain_step_done", turn, agent, response=said[-1] if said else "")
    for emit in outcome.emits:
        if emit.queue == INBOX:
            yield frame("chain_handoff", turn, agent, fromAgent=agent, toAgent=emit.target)
        elif emit.queue == OUTBOX:
            yield frame("response_ready", turn, agent)


def frame(kind: str, turn: LeasedTurn, agent: str, **further: object) -> Payload:
    primary = turn.primary
    told = about(
        kind, primary.id, primary.message_id, agent, payload_to_show(primary), primary.sent_by
    )
    told |= further
    if len(turn.events) > 1:
        told["messageIds"] = [event.message_id or str(event.id) for event in turn.events]
    return told


def listen_to_puts(store: Store, listeners: Listeners, default: str) -> None:
    """From now on listeners hear of messages that this process stores."""
    put = store.put

    async def told(
        events: Sequence[NewEvent], *, records: Sequence[Record] = (), tx: Transaction | None = None
    ) -> list[int | None]:
        ids = await put(events, records=records, tx=tx)
        # A transaction of the caller's may still come to nothing.
        for frame in received(events, ids) if tx is None else ():
            named = frame | {"agent": frame["agent"] or default}
            listeners.tell(named)
            listeners.tell(named | {"type": "agent_routed"})
        return ids

    setattr(store, "put", told)  # noqa: B010


async def announce(
    store: Store, process: Process, listeners: Listeners, default: str, *, is_on: bool
) -> None:
    """Tells the store whether to note what happens, and everybody that a process started."""
    if listeners:
        listen_to_puts(store, listeners, default)
    if not is_on:
        await store.set_setting(SETTING, False)
    started: Payload = {"type": "processor_start", "process": process.id, "host": process.host}
    listeners.tell(started)
    if is_on:
        # Not kept where no API has ever been: nobody could read it.
        await store.put([], records=[Activity((started,))])
