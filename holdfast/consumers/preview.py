"""The preview of a turn: its growing answer, shown where the message came from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from holdfast.agents.journal import TurnJournal
from holdfast.channels.base import Channel, Preview, Progress, response_event
from holdfast.message import PREVIEW, Payload
from holdfast.queue.event import OUTBOX, NewEvent
from holdfast.queue.outcome import Done, Outcome


class TurnPreview:
    """Opens a preview with the first text. Shows nothing on a channel that cannot edit messages."""

    def __init__(
        self, channel: Channel, journal: TurnJournal, draft: Callable[[], Payload]
    ) -> None:
        self._channel = channel
        self._journal = journal
        self._draft = draft
        self._preview: Preview | None = None
        self._is_open = False
        self._progress: Progress | None = None

    def show(self, text: str) -> None:
        """Show the whole text so far."""
        if not self._is_open:
            self._is_open = True
            key = f"preview.{self._journal.leased.primary.id}"
            note = self._journal.earlier_preview or {}
            self._preview = self._channel.open_preview(self._draft(), key, note, self)
        if self._preview is not None:
            self._preview.show(text)

    def progress(self, text: str) -> None:
        """Show what the agent does now."""
        if self._progress is None:
            self._progress = self._channel.open_progress(self._draft(), self)
        if self._progress is not None:
            self._progress.show(text)

    def hold(self) -> AbstractAsyncContextManager[None]:
        """Cancel the block when the lease of the turn runs out. Raises LeaseLost."""
        return self._journal.leased.under_lease()

    async def keep(self, note: Payload) -> None:
        """Store a note in the journal. Raises LeaseLost."""
        await self._journal.record(preview=note)

    async def stop(self) -> Payload | None:
        """End editing. Returns the note of the preview, None if no preview was opened."""
        if self._progress is not None:
            self._progress.close()
        return None if self._preview is None else await self._preview.close()

    async def complete(self, outcome: Outcome) -> Outcome:
        """End editing, and let the response of the turn replace the preview.

        An answer only for teammates has no response, so an empty one removes the preview."""
        if not isinstance(outcome, Done):
            return outcome
        note = await self.stop()
        if note is None:
            # An earlier attempt may have shown something.
            note = (await self._journal.earlier()).preview
        if not note:
            return outcome
        replaced = False
        emits: list[NewEvent] = []
        for emit in outcome.emits:
            if emit.queue == OUTBOX and not replaced:
                emit, replaced = replace(emit, event={**emit.event, PREVIEW: note}), True
            emits.append(emit)
        if not replaced:
            emits.append(response_event({**self._draft(), PREVIEW: note}))
        return replace(outcome, emits=tuple(emits))
