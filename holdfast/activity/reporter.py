"""The reporter: notes starts and ends of inbox turns in the activity log and for listeners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import assert_never

from holdfast.activity.frames import done_frames, start_frame, turn_frame
from holdfast.activity.listeners import Listeners
from holdfast.agents.journal import NewFrame
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.outcome import Dead, Done, Lost, Outcome, Retry, Settled, Snooze
from holdfast.queue.record import Activity
from holdfast.queue.store import Process, Store
from holdfast.queue.turn import LeasedTurn
from holdfast.store.activity import with_deltas
from holdfast.telemetry import ACTIVITY_WRITE_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

Handler = Callable[[LeasedTurn], Awaitable[Outcome]]

SETTING = "activity"
"""Key of the setting that says whether the store notes activity: an API has been started."""
READ_SETTING_EVERY = timedelta(seconds=2)
"""A worker notices within this time that the first API was started."""
GATHER_STARTS = timedelta(milliseconds=50)
"""Time that starts wait for others, to be written together.

A turn that ends sooner writes start and end at once."""


@dataclass(slots=True, eq=False)
class _Starts:
    """Frames of turns that began at about the same time; once taken, they are being written."""

    frames: dict[int, Payload] = field(default_factory=dict)
    is_taken: bool = False
    is_written: asyncio.Event = field(default_factory=asyncio.Event)


class TurnReport:
    """The frames of one running turn: steps, and the text of its answer."""

    def __init__(self, reporter: Reporter, turn: LeasedTurn, starts: _Starts) -> None:
        self._reporter = reporter
        self._turn = turn
        self.starts = starts
        self.is_streamed = False

    async def to_store(self, frames: Sequence[NewFrame]) -> Sequence[Payload]:
        """Return frames to store, after the start of the turn if that is not stored yet."""
        if not self._reporter.is_on:
            return ()
        built = [self._frame(kind, fields) for kind, fields in frames]
        if self.starts.is_taken:
            await self.starts.is_written.wait()
        elif start := self.starts.frames.pop(self._turn.fence, None):
            built.insert(0, start)
        return built

    def publish(self, frames: Sequence[NewFrame]) -> None:
        """Give frames that are stored to the listeners of this process."""
        for kind, fields in frames:
            self._reporter.listeners.publish(self._frame(kind, fields))

    def _frame(self, kind: str, fields: Payload) -> Payload:
        return turn_frame(kind, self._turn, self._reporter.agent_of(self._turn), **fields)


class Reporter:
    """Wraps the handler of the inbox. Its own failures never fail a turn."""

    def __init__(self, store: Store, handler: Handler, default: str, listeners: Listeners) -> None:
        self._store = store
        self._handler = handler
        self.default = default
        self.listeners = listeners
        self._starts = _Starts()
        self._reports: dict[int, TurnReport] = {}
        self._has_starts = asyncio.Event()
        self._hurry = asyncio.Event()
        self.is_on = False
        self._read_setting_at = 0.0

    async def read_setting(self) -> None:
        """Learn whether anybody can read activity: an API has run, here or in another process."""
        self._read_setting_at = (
            asyncio.get_running_loop().time() + READ_SETTING_EVERY.total_seconds()
        )
        with suppress(HoldfastError):
            self.is_on = bool(await self._store.setting(SETTING))

    async def handle(self, turn: LeasedTurn) -> Outcome:
        if asyncio.get_running_loop().time() > self._read_setting_at:
            await self.read_setting()
        if not self.is_on and not self.listeners:
            return await self._handler(turn)
        starts, started = self._starts, start_frame(turn, self.agent_of(turn))
        starts.frames[turn.fence] = started
        self._has_starts.set()
        self.listeners.publish(started)
        report = self._reports[turn.fence] = TurnReport(self, turn, starts)
        try:
            return await self._handle(turn, report)
        finally:
            del self._reports[turn.fence]

    async def _handle(self, turn: LeasedTurn, report: TurnReport) -> Outcome:
        starts = report.starts
        try:
            outcome = await self._handler(turn)
        except asyncio.CancelledError:
            starts.frames.pop(turn.fence, None)
            raise
        except BaseException:
            await self._wait_written(starts)
            raise
        if isinstance(outcome, Done):
            return await self._report_done(turn, outcome, report)
        # The store itself writes how it failed: it knows whether an attempt is left.
        await self._wait_written(starts)
        return outcome

    def report(self, turn: LeasedTurn) -> TurnReport | None:
        """Return the report of a turn that is handled now; None if nobody reads activity."""
        return self._reports.get(turn.fence)

    async def run(self) -> None:
        """Write starts until cancelled; run it for as long as turns are handled."""
        while True:
            await self._has_starts.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(GATHER_STARTS.total_seconds()):
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
            # No retry: it may have been stored all the same, and would come twice.
            log.warning(Entry(ACTIVITY_WRITE_FAILED, error=error))

    async def _wait_written(self, starts: _Starts) -> None:
        """Wait until a start is stored, so that later frames of the turn come after it."""
        if not starts.is_taken:
            self._hurry.set()
        await starts.is_written.wait()

    async def _report_done(self, turn: LeasedTurn, outcome: Done, report: TurnReport) -> Done:
        starts = report.starts
        frames = tuple(
            done_frames(turn, self.agent_of(turn), outcome, is_streamed=report.is_streamed)
        )
        if starts.is_taken:
            await self._wait_written(starts)
        elif start := starts.frames.pop(turn.fence, None):
            frames = (start, *frames)
        return Done(outcome.emits, (*outcome.records, Activity(frames)), outcome.state)

    def report_end(self, turn: LeasedTurn, outcome: Outcome, result: Settled | Lost) -> None:
        """Publish the end of a turn to the listeners of this process, once it is stored."""
        if not self.listeners or isinstance(result, Lost):
            return
        match outcome:
            case Done(_, records):
                activities = [record for record in records if isinstance(record, Activity)]
                stored = [frame for activity in activities for frame in activity.frames]
                for frame in with_deltas(stored):
                    if frame["type"] != "chain_step_start":
                        self.listeners.publish(frame)
            case Retry() | Dead():
                error = outcome.error if isinstance(outcome, Retry) else outcome.reason
                is_dead = result.ended == "dead"
                self.listeners.publish(
                    turn_frame(
                        "message_failed", turn, self.agent_of(turn), error=error, dead=is_dead
                    )
                )
            case Snooze():
                pass
            case _:
                assert_never(outcome)

    def agent_of(self, turn: LeasedTurn) -> str:
        return turn.primary.target or self.default


async def announce(
    store: Store, process: Process, listeners: Listeners, default: str, *, is_on: bool
) -> None:
    """Set whether the store notes activity, and publish that a process started."""
    listeners.default = default
    if not is_on:
        await store.set_setting(SETTING, False)
    started: Payload = {"type": "processor_start", "process": process.id, "host": process.host}
    listeners.publish(started)
    if is_on:
        # Not kept where no API has ever been: nobody could read it.
        await store.put([], records=[Activity((started,))])
