"""The journal of a running turn: recorded under its fence, and read back in later attempts."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import EffectUnknown, HoldfastError, LeaseLost, StepError, StoreUnavailable
from holdfast.message import Payload
from holdfast.queue.event import Event
from holdfast.queue.journal import Journal, JournalEntry, JournalTable, Step, Write
from holdfast.queue.outcome import Dead, Done, Outcome
from holdfast.queue.settler import retry_through_outage
from holdfast.queue.turn import LeasedTurn
from holdfast.telemetry import JOURNAL_FAILED
from holdfast.telemetry.logs import Entry

if TYPE_CHECKING:
    from holdfast.agents.steps import Steps
    from holdfast.agents.stream import Stream
    from holdfast.agents.turn import Turn
    from holdfast.agents.waits import Waits

log = logging.getLogger(__name__)

CURRENT: ContextVar[TurnJournal | None] = ContextVar("current_journal", default=None)
"""The journal of the turn that runs here."""

NewFrame = tuple[str, Payload]
"""Type and further fields of a frame about a running turn."""


class TurnFrames(Protocol):
    """Makes frames of a running turn for the activity log and for listeners."""

    is_streamed: bool
    """Whether frames have shown the whole answer, so that the last one need not repeat it."""

    async def to_store(self, frames: Sequence[NewFrame]) -> Sequence[Payload]:
        """Return the frames as they are stored, after the start of the turn."""

    def publish(self, frames: Sequence[NewFrame]) -> None:
        """Give frames that are stored to the listeners of this process."""


class JournalStore(JournalTable, Protocol):
    """The part of a store that a running turn needs."""

    async def now(self) -> datetime:
        """Return the time of the store's clock."""


class SendQuestion(Protocol):
    """Sends a turn's question to the conversation of its message. Repeating adds nothing."""

    async def __call__(
        self, name: str, signal: str, text: str, choices: Mapping[str, Any]
    ) -> None: ...


class AnswerPreview(Protocol):
    """Shows a growing answer where the message came from."""

    def show(self, text: str) -> None:
        """Show the whole text so far."""

    def progress(self, text: str) -> None:
        """Show what the agent does now."""


class TurnJournal:
    """The journal of one attempt. Its parts are built at their first use: most turns need none."""

    visible_length: Callable[[str], int] = len
    """Returns how much of a text can be shown before its end is known."""
    preview: AnswerPreview | None = None
    turn: Turn | None = None
    """The turn as the agent has it."""
    has_ended = False
    unknown: EffectUnknown | None = None
    """The once-step that ends this turn, whatever the agent's code does with the error."""
    _is_used = False
    _earlier: Journal | None = None

    def __init__(
        self,
        store: JournalStore,
        leased: LeasedTurn,
        agent: str,
        frames: Callable[[LeasedTurn], TurnFrames | None] | None = None,
        *,
        question_sender: Callable[[Event], SendQuestion | None] = lambda _: None,
        leave_lane: bool = False,
    ) -> None:
        self.store = store
        self.leased = leased
        self.agent = agent
        self.task = asyncio.current_task()
        self.leave_lane = leave_lane
        """Whether other messages of the lane go on while the turn waits."""
        self._began_at = time.monotonic()
        self._build_frames = frames
        self._question_sender = question_sender

    @cached_property
    def steps(self) -> Steps:
        from holdfast.agents.steps import Steps

        self._is_used = True
        return Steps(self)

    @cached_property
    def stream(self) -> Stream:
        from holdfast.agents.stream import Stream

        self._is_used = True
        return Stream(self)

    @cached_property
    def waits(self) -> Waits:
        from holdfast.agents.waits import Waits

        self._is_used = True
        return Waits(self)

    @cached_property
    def frames(self) -> TurnFrames | None:
        return None if self._build_frames is None else self._build_frames(self.leased)

    @property
    def send_question(self) -> SendQuestion | None:
        """Sends a question of this turn; None if the channel of the message has no buttons."""
        return self._question_sender(self.leased.primary)

    @cached_property
    def _background(self) -> set[asyncio.Task[None]]:
        return set()

    @cached_property
    def _reading(self) -> asyncio.Lock:
        return asyncio.Lock()

    def uses(self, part: str) -> bool:
        """Return whether the steps, the stream or the waits were used in this attempt."""
        return part in self.__dict__

    @property
    def was_claimed_before(self) -> bool:
        return len(self.leased.primary.claimed) > 1

    def now(self) -> datetime:
        """Estimate the store's time: that of the claim, plus the time that has passed since."""
        elapsed = timedelta(seconds=time.monotonic() - self._began_at)
        return self.leased.primary.claimed[-1] + elapsed

    def check_open(self, what: str) -> None:
        """Raise StepError if the turn is over."""
        if self.has_ended:
            raise StepError(f"{what} came after the end of its turn: await it before you answer")

    async def earlier(self) -> Journal:
        """Return what earlier attempts recorded, read once. A first claim has nothing to read."""
        if self._earlier is None:
            if not self.was_claimed_before:
                self._earlier = Journal()
            else:
                async with self._reading:
                    if self._earlier is None:
                        self._earlier = await self.store.journal(self.leased.primary.id)
        return self._earlier

    @property
    def earlier_preview(self) -> Payload | None:
        """The note of an earlier attempt's preview; None if there is none, or nothing was read."""
        return None if self._earlier is None else self._earlier.preview

    async def record(
        self,
        *,
        steps: Sequence[Step] = (),
        write: Write | None = None,
        progress: str | None = None,
        preview: Payload | None = None,
        frames: Sequence[NewFrame] = (),
    ) -> None:
        """Record changes and their frames. Raises LeaseLost, and StoreUnavailable."""
        entry = JournalEntry(
            turn=self.leased,
            steps=steps,
            write=write,
            progress=progress,
            preview=preview,
            frames=await self.frames.to_store(frames) if frames and self.frames else (),
        )
        await self.store.record(entry)
        if frames and self.frames:
            self.frames.publish(frames)

    async def record_steps(self, *steps: Step, frames: Sequence[NewFrame] = ()) -> None:
        """Record steps, through an outage of the database until the lease ends."""
        await self.until_lease_ends(lambda: self.record(steps=steps, frames=frames))

    async def until_lease_ends(self, record: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call `record` through an outage of the database. Raises LeaseLost when the lease ends."""
        try:
            await retry_through_outage(record, lambda: self.leased.until, self._log_outage)
        except StoreUnavailable:
            self.leased.check_lease()
            raise

    def _log_outage(self, error: Exception) -> None:
        log.warning(Entry(JOURNAL_FAILED, event_id=self.leased.primary.id, error=error))

    def in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do work that the agent's code need not wait for; `close` waits for it."""
        task = asyncio.create_task(self._guard(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except LeaseLost:
            # Whatever the turn begins next raises LeaseLost.
            self.leased.until = -math.inf
        except HoldfastError as error:
            self._log_outage(error)

    def note_progress(self, text: str) -> None:
        """Show what the agent does now. Callable from any thread."""
        assert self.task is not None
        with suppress(RuntimeError):
            self.task.get_loop().call_soon_threadsafe(lambda: self.stream.progress(text))

    async def run(self, work: Awaitable[Outcome]) -> Outcome:
        """Run the turn and return its outcome: that of the agent, unless a wait suspended it or a
        once-step is unknown."""
        token = CURRENT.set(self)
        try:
            outcome = await work
        except asyncio.CancelledError:
            if not self._was_suspended():
                self._abandon()
                raise
            outcome = await self.waits.snooze()
        except Exception as error:
            if self.unknown is None:
                await self._keep(error)
                raise
            outcome = Dead(str(self.unknown), type(self.unknown).__name__)
        finally:
            CURRENT.reset(token)
            # Both refer to each other: the garbage collector should not have to find them.
            self.turn = None
        if self._is_used or self.was_claimed_before:
            return await self._end(outcome)
        self.has_ended = True
        return outcome

    def _was_suspended(self) -> bool:
        """Return whether a wait of the turn cancelled its task, and nobody else did."""
        if not self.uses("waits") or not self.waits.is_suspended:
            return False
        return self.task is not None and self.task.uncancel() == 0

    async def _end(self, outcome: Outcome) -> Outcome:
        """Record what is left and return the outcome to settle.

        The agent's code may have caught an unknown effect, or the cancellation of a wait."""
        if self.unknown is not None:
            outcome = Dead(str(self.unknown), type(self.unknown).__name__)
        elif isinstance(outcome, Done):
            outcome = await self.waits.snooze() if self._was_suspended() else outcome
        if isinstance(outcome, Done):
            await self.finish("")
            await self.steps.log_unused()
        elif self.uses("stream"):
            await self.stream.keep()
        await self._close()
        return outcome

    async def finish(self, text: str) -> None:
        """Complete the stream of the answer with its final text; the first call counts."""
        if self.uses("stream") or self.was_claimed_before:
            await self.stream.finish(text)

    async def _keep(self, error: Exception) -> None:
        """Keep the text of a turn that failed, if that is still possible."""
        if self.uses("stream") and not isinstance(error, LeaseLost):
            with suppress(HoldfastError):
                await self.stream.keep()
        await self._close()

    async def _close(self) -> None:
        """End the turn for its code, and wait for what is recorded in the background."""
        self.has_ended = True
        if self.uses("waits"):
            self.waits.end()
        if self._background:
            await asyncio.wait(self._background)

    def _abandon(self) -> None:
        """End a turn that was cancelled: nothing more is recorded."""
        self.has_ended = True
        if self.uses("waits"):
            self.waits.end()
        for task in self._background:
            task.cancel()
