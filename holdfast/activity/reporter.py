"""The reporter: notes starts and ends of inbox turns in the activity log and for listeners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import assert_never

from holdfast.activity.frames import done_frames, start_frame, turn_frame
from holdfast.activity.listeners import Listeners
from holdfast.errors import HoldfastError
from holdfast.message import Payload
from holdfast.queue.outcome import Dead, Done, Lost, Outcome, Retry, Settled, Snooze
from holdfast.queue.record import Activity
from holdfast.queue.store import Process, Store
from holdfast.queue.turn import LeasedTurn
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


class Reporter:
    """Wraps the handler of the inbox. Its own failures never fail a turn."""

    def __init__(self, store: Store, handler: Handler, default: str, listeners: Listeners) -> None:
        self._store = store
        self._handler = handler
        self.default = default
        self._listeners = listeners
        self._starts = _Starts()
        self._has_starts = asyncio.Event()
        self._hurry = asyncio.Event()
        self._is_on = False
        self._read_setting_at = 0.0

    async def read_setting(self) -> None:
        """Learn whether anybody can read activity: an API has run, here or in another process."""
        self._read_setting_at = (
            asyncio.get_running_loop().time() + READ_SETTING_EVERY.total_seconds()
        )
        with suppress(HoldfastError):
            self._is_on = bool(await self._store.setting(SETTING))

    async def handle(self, turn: LeasedTurn) -> Outcome:
        if asyncio.get_running_loop().time() > self._read_setting_at:
            await self.read_setting()
        if not self._is_on and not self._listeners:
            return await self._handler(turn)
        starts, started = self._starts, start_frame(turn, self._agent(turn))
        starts.frames[turn.fence] = started
        self._has_starts.set()
        self._listeners.publish(started)
        try:
            outcome = await self._handler(turn)
        except asyncio.CancelledError:
            starts.frames.pop(turn.fence, None)
            raise
        except BaseException:
            await self._wait_written(starts)
            raise
        if isinstance(outcome, Done):
            return await self._report_done(turn, outcome, starts)
        # The store itself writes how it failed: it knows whether an attempt is left.
        await self._wait_written(starts)
        return outcome

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

    async def _report_done(self, turn: LeasedTurn, outcome: Done, starts: _Starts) -> Done:
        frames = tuple(done_frames(turn, self._agent(turn), outcome))
        if starts.is_taken:
            await self._wait_written(starts)
        else:
            frames = (starts.frames.pop(turn.fence), *frames)
        return Done(outcome.emits, (*outcome.records, Activity(frames)), outcome.state)

    def ended(self, turn: LeasedTurn, outcome: Outcome, result: Settled | Lost) -> None:
        """Publish the end of a turn to the listeners of this process, once it is stored."""
        if not self._listeners or isinstance(result, Lost):
            return
        match outcome:
            case Done(_, records):
                activities = [record for record in records if isinstance(record, Activity)]
                for frame in [frame for activity in activities for frame in activity.frames]:
                    if frame["type"] != "chain_step_start":
                        self._listeners.publish(frame)
            case Retry() | Dead():
                error = outcome.error if isinstance(outcome, Retry) else outcome.reason
                is_dead = result.ended == "dead"
                self._listeners.publish(
                    turn_frame("message_failed", turn, self._agent(turn), error=error, dead=is_dead)
                )
            case Snooze():
                pass
            case _:
                assert_never(outcome)

    def _agent(self, turn: LeasedTurn) -> str:
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
