"""The signs that an agent works on a message: a typing notice and a reaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from holdfast.channels.background import Start
from holdfast.channels.matrix.account import Account
from holdfast.channels.matrix.incoming import Location
from holdfast.telemetry import STATUS_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

TYPING_FOR = timedelta(seconds=30)
RENEW_EVERY = timedelta(seconds=20)


@asynccontextmanager
async def show_status(
    account: Account, location: Location, event: str, start: Start, *, again: bool
) -> AsyncIterator[None]:
    """Show the signs after a while, and remove them after the block. The work waits for neither."""
    done = asyncio.Event()
    sign = _Sign(account, location.room, event, again=again)
    start(sign.show(done))
    try:
        yield
    finally:
        done.set()


class _Sign:
    """Typing and reaction for one message.

    Sending a reaction again with the same key returns its id, so one that a crashed worker left
    can be found and redacted."""

    def __init__(self, account: Account, room: str, event: str, *, again: bool) -> None:
        self._account = account
        self._room = room
        self._event = event
        self._again = again

    async def show(self, done: asyncio.Event) -> None:
        try:
            if self._again:
                await self._remove("first")
            if await _wait(done, self._account.access.status_after):
                return
            key = "again" if self._again else "first"
            await self._react(key)
            await self._type_until(done)
            await self._remove(key)
        except Exception as error:  # noqa: BLE001 - a sign is not worth a turn
            log.warning(Entry(STATUS_FAILED, channel="matrix", error=error))

    async def _type_until(self, done: asyncio.Event) -> None:
        homeserver, bot = self._account.homeserver, self._account.bot
        assert bot is not None
        while not done.is_set():
            await homeserver.set_typing(self._room, bot.user, TYPING_FOR)
            await _wait(done, RENEW_EVERY)
        await homeserver.set_typing(self._room, bot.user, None)

    async def _react(self, key: str) -> str | None:
        status = self._account.access.status
        if not status:
            return None
        relation = {"rel_type": "m.annotation", "event_id": self._event, "key": status}
        content = {"m.relates_to": relation}
        return await self._account.homeserver.send(
            self._room, "m.reaction", content, f"status {self._event} {key}"
        )

    async def _remove(self, key: str) -> None:
        reaction = await self._react(key)
        if reaction is not None:
            key = f"status {self._event} {key} redact"
            await self._account.homeserver.redact(self._room, reaction, key)


async def _wait(done: asyncio.Event, duration: timedelta) -> bool:
    """Wait for the end of the work, at most this long. Returns whether it has ended."""
    try:
        async with asyncio.timeout(duration.total_seconds()):
            await done.wait()
    except TimeoutError:
        return False
    return True
