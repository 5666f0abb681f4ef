"""The stream of an answer: text that is kept and shown while the agent still works."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.agents.journal import NewFrame, TurnJournal
from holdfast.errors import StepError, StoreUnavailable
from holdfast.queue.journal import Journal, Write
from holdfast.store.journal import stored_text

FLUSH_EVERY = timedelta(milliseconds=280)
"""Least time between two records of a turn's text; the last one does not wait.

Readers look for news every 100 ms. So they never get more than four deltas in a second."""


class Stream:
    """The text that one attempt of a turn writes.

    A later attempt that writes the same text shows nothing. At the first difference it replaces
    the whole, so that a reader never sees parts of both."""

    def __init__(self, journal: TurnJournal) -> None:
        self._journal = journal
        self._pieces: list[str] = []
        self._unsent: list[str] = []
        self._shown: list[str] = []
        self._length = 0
        self._matched = 0
        self._expected = ""
        self._generation = 0
        self._is_void = False
        self._has_begun = False
        self._is_finished = False
        self._progress: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flushing = asyncio.Lock()
        self._next_flush_at = 0.0

    @property
    def text(self) -> str:
        """Everything that this attempt has written."""
        return "".join(self._pieces)

    async def write(self, text: str) -> None:
        """Add a text to the answer. Raises LeaseLost if the turn is not ours any more."""
        self._journal.check_open("turn.write")
        if not isinstance(text, str):
            raise StepError(f"turn.write takes a text, not {type(text).__name__}")
        self._journal.leased.check_lease()
        await self._begin()
        if text:
            text = stored_text(text)
            self._pieces.append(text)
            self._unsent.append(text)
            self._schedule()

    def progress(self, text: str) -> None:
        """Note what the agent does now, to be recorded with the next flush."""
        if not self._journal.has_ended:
            self._progress = stored_text(text)
            self._schedule()

    async def _begin(self) -> None:
        """Learn which text readers have seen in earlier attempts."""
        if self._has_begun:
            return
        journal = await self._journal.earlier()
        if not self._has_begun:
            self._has_begun = True
            self._generation = journal.generation
            self._expected = journal.text
            self._shown, self._length = [journal.text], len(journal.text)
            self._is_void = bool(journal.text) and not _has_steps(journal)

    def _schedule(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._next_flush_at, loop.time()), self._start_flush)

    def _start_flush(self) -> None:
        self._timer = None
        self._next_flush_at = asyncio.get_running_loop().time() + FLUSH_EVERY.total_seconds()
        if not self._journal.has_ended:
            self._journal.in_background(self._journal.until_lease_ends(self.flush))

    async def flush(self) -> None:
        """Record what can be shown of the text written so far, and the progress."""
        async with self._flushing:
            await self._begin()
            write = None if self._is_finished else self._next_write()
            progress = self._progress
            if write is None and progress is None:
                return
            await self._record(write, progress)
            if self._progress == progress:
                self._progress = None

    async def _record(self, write: Write | None, progress: str | None = None) -> None:
        try:
            await self._journal.record(
                write=write, progress=progress, frames=self._frames(write, progress)
            )
        except StoreUnavailable:
            if write is not None:
                # It may have been stored all the same: the next one replaces the whole text.
                self._generation, self._is_void = write.generation, True
            raise
        if write is not None:
            self._show(write)
        if progress is not None and self._journal.preview is not None:
            self._journal.preview.progress(progress)

    def _show(self, write: Write) -> None:
        if write.offset == 0:
            self._shown.clear()
        self._shown.append(write.text)
        self._length = write.offset + len(write.text)
        self._generation, self._is_void = write.generation, False
        if self._journal.preview is not None and not self._is_finished:
            self._journal.preview.show("".join(self._shown))

    def _next_write(self) -> Write | None:
        """Return the text to record now, None if readers have all that can be shown."""
        text = "".join(self._unsent)
        length = self._journal.visible_length(text)
        if self._is_void:
            whole = self.text
            shown = len(whole) - len(text) + length
            self._unsent = [text[length:]]
            return self._replace(whole[:shown]) if shown else None
        new, self._unsent = text[:length], [text[length:]]
        expected = self._expected[self._matched : self._matched + len(new)]
        if not new.startswith(expected):
            return self._replace(self.text[: len(self.text) - len(text) + length])
        self._matched += len(expected)
        further = new[len(expected) :]
        return self._append(further) if further else None

    def _append(self, text: str) -> Write:
        return Write(max(self._generation, 1), self._length, text)

    def _replace(self, text: str) -> Write:
        """Return a write of the whole text, whose higher generation voids the text before."""
        self._expected = ""
        return Write(self._generation + 1, 0, text)

    def _frames(self, write: Write | None, progress: str | None) -> list[NewFrame]:
        frames: list[NewFrame] = []
        if progress is not None:
            frames.append(("progress", {"text": progress}))
        if write is None:
            return frames
        if not write.offset and (self._length or self._is_void):
            frames.append(("response_reset", {"generation": write.generation}))
        if write.text:
            delta = {"text": write.text, "offset": write.offset, "generation": write.generation}
            frames.append(("response_delta", delta))
        return frames

    async def finish(self, text: str) -> None:
        """Record the rest of the final text, or the whole where it differs from what was shown.

        Nothing is recorded if nothing was ever shown: the response itself carries the text."""
        await self._begin()
        self._stop_timer()
        is_unstreamed = not self._length and not self._pieces
        if self._is_finished or is_unstreamed:
            return
        final = stored_text(text)
        await self._journal.until_lease_ends(lambda: self._finish(final))
        if self._journal.frames is not None:
            self._journal.frames.is_streamed = True

    async def _finish(self, text: str) -> None:
        async with self._flushing:
            self._is_finished = True
            shown = "".join(self._shown)
            is_continued = text.startswith(shown) and not self._is_void
            if not is_continued:
                await self._record(self._replace(text))
            elif text != shown:
                await self._record(self._append(text[len(shown) :]))

    async def keep(self) -> None:
        """Record what was written by a turn that ends without an answer, so that it is kept."""
        self._stop_timer()
        if self._unsent or self._progress is not None:
            await self._journal.until_lease_ends(self.flush)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _has_steps(journal: Journal) -> bool:
    """Return whether an earlier attempt got past a step or a wait, so that its text can go on."""
    return any(
        step.state == "done" or step.kind in ("sleep", "signal") for step in journal.steps.values()
    )
