"""The preview of a turn: its growing answer, shown where the message came from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from holdfast.agents.journal import TurnJournal
from holdfast.channels.base import Channel, Preview
from holdfast.message import Payload


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

    def show(self, text: str) -> None:
        """Show the whole text so far."""
        if not self._is_open:
            self._is_open = True
            key = f"preview.{self._journal.leased.primary.id}"
            note = self._journal.earlier_preview or {}
            self._preview = self._channel.open_preview(self._draft(), key, note, self)
        if self._preview is not None:
            self._preview.show(text)

    def check(self) -> None:
        """Raise LeaseLost if the lease of the turn has run out."""
        self._journal.leased.check_lease()

    async def keep(self, note: Payload) -> None:
        """Store a note in the journal. Raises LeaseLost."""
        await self._journal.record(preview=note)

    async def close(self) -> Payload:
        """End editing. Returns the note of the message to replace, empty if there is none."""
        if self._preview is not None:
            return await self._preview.close()
        return (await self._journal.earlier()).preview or {}


@asynccontextmanager
async def previewing(
    channel: Channel, journal: TurnJournal, draft: Callable[[], Payload]
) -> AsyncIterator[None]:
    """Show the growing answer of a turn during the block."""
    preview = journal.preview = TurnPreview(channel, journal, draft)
    try:
        yield
    finally:
        await preview.close()
