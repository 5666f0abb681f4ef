"""A growing answer as one message that is edited until the response replaces its text."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from holdfast.channels.background import Start
from holdfast.channels.base import NotNow, Preview, PreviewFence
from holdfast.channels.budget import EditBudget
from holdfast.errors import LeaseLost
from holdfast.message import Payload
from holdfast.telemetry import PREVIEW_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

EDIT_EVERY = timedelta(seconds=1)
"""Least time between two edits of one message."""
START_AFTER = timedelta(milliseconds=300)
"""An answer that is complete within this time is posted once and never edited."""
END_WITHIN = timedelta(seconds=5)
"""Time for a request that is under way when the turn ends."""
STILL_GROWING = " …"
EDITED_AT = "edited_at"
"""Key of a note: when the message was last edited."""
MESSAGE_ID = "ts"
"""Key of a note: the platform's id of the message. Slack, the first platform, calls it ts."""


class Post(Protocol):
    """A message of the bot that can be found again by its key."""

    @property
    def key(self) -> str:
        """The key under which `find` finds it."""

    async def post(self, text: str) -> str:
        """Post the message. Returns its id."""

    async def edit(self, id: str, text: str) -> bool:
        """Replace the text of a message. Returns False if it is too late."""

    async def delete(self, id: str) -> None:
        """Delete a message, unless it is gone."""

    async def find(self, key: str) -> str | None:
        """Return the id of the message with this key, None if there is none."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a platform shows a text that grows."""

    texts_of: Callable[[str], Sequence[str]]
    """Returns a text as the platform's messages, cut at its limit."""
    longest: int
    """Characters of one message."""


class EditedPreview(Preview):
    """Posts a message once the answer has begun, and edits it while the answer grows.

    The note in the journal has the key of the message before it is posted, and its id after, so
    that a later attempt, or the response, finds the message that a crashed worker left."""

    def __init__(
        self,
        post: Post,
        style: Style,
        budget: EditBudget,
        note: Payload,
        fence: PreviewFence,
        start: Start,
    ) -> None:
        self._post = post
        self._style = style
        self._budget = budget
        self._note = note
        self._fence = fence
        self._start = start
        self._text = self._shown = ""
        self._is_open = False
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def show(self, text: str) -> None:
        self._text = text
        self._changed.set()
        if self._task is None:
            self._task = self._start(self._run())

    async def close(self) -> Payload:
        self._closing.set()
        self._changed.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=END_WITHIN.total_seconds())
            self._task.cancel()
        if self._is_open:
            self._is_open = False
            self._budget.close()
        return self._note

    async def _run(self) -> None:
        try:
            await self._pause(START_AFTER)
            while not self._closing.is_set():
                await self._changed.wait()
                self._changed.clear()
                await self._show_newest()
        except LeaseLost:
            # Another worker shows the answer now.
            return
        except Exception as error:  # noqa: BLE001 - a preview is not worth a turn
            log.warning(Entry(PREVIEW_FAILED, error=error))

    async def _show_newest(self) -> None:
        """Bring the newest text to the platform, then wait until the next edit may be made."""
        text, pause = growing_text(self._text, self._style), EDIT_EVERY
        if text == self._shown or self._closing.is_set():
            return
        is_shown = False
        try:
            is_shown = await self._show(text)
        except NotNow as wait:
            pause = wait.delay
        if is_shown:
            self._shown = text
        else:
            self._changed.set()
        await self._pause(pause)

    async def _show(self, text: str) -> bool:
        """Post or edit the message. Returns False if the budget does not allow it now."""
        self._is_open = self._is_open or await self._budget.open()
        if not self._is_open:
            return False
        id = self._note.get(MESSAGE_ID) or await self._find()
        if id is None:
            await self._post_first(text)
            return True
        if not self._budget.take():
            return False
        async with self._fence.hold():
            await self._post.edit(id, text)
        self._note = {**self._note, MESSAGE_ID: id, EDITED_AT: time.time()}
        return True

    async def _find(self) -> str | None:
        """Look for a message that a crashed worker may have posted."""
        return await self._post.find(self._note["key"]) if self._note else None

    async def _post_first(self, text: str) -> None:
        # Noted first: after a crash, the key tells how to find the message.
        await self._keep({"key": self._post.key})
        async with self._fence.hold():
            id = await self._post.post(text)
        await self._keep({"key": self._post.key, MESSAGE_ID: id, EDITED_AT: time.time()})

    async def _keep(self, note: Payload) -> None:
        self._note = note
        await self._fence.keep(note)

    async def _pause(self, duration: timedelta) -> None:
        """Wait for a duration, or until the turn ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(duration.total_seconds()):
                await self._closing.wait()


async def replace_preview(post: Post, note: Payload, text: str) -> str | None:
    """Edit a preview into the text of a response, or delete it if there is no text.

    Returns its id; None if the response has to be posted."""
    id = note.get(MESSAGE_ID) or await post.find(note["key"])
    if id is None:
        return None
    await asyncio.sleep(_seconds_to_next_edit(note))
    if not text:
        await post.delete(id)
        return str(id)
    return str(id) if await post.edit(id, text) else None


def _seconds_to_next_edit(note: Payload) -> float:
    """Return the seconds until the next edit; at most one interval, since clocks may differ."""
    least = EDIT_EVERY.total_seconds()
    edited_at = float(note.get(EDITED_AT, 0.0))
    return min(max(edited_at + least - time.time(), 0.0), least)


def growing_text(text: str, style: Style) -> str:
    """Return the text of a preview: what fits into one message, with a sign that more will come."""
    room = style.longest - len(STILL_GROWING)
    texts = style.texts_of(text[:room])
    if not texts:
        return ""
    return texts[0] if len(text) > room or len(texts) > 1 else texts[0] + STILL_GROWING
