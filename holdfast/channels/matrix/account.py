"""One account: signs in, follows the sync, and saves its position once all before it is stored."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

from holdfast.channels.base import NotNow, Put
from holdfast.channels.budget import EditBudget
from holdfast.channels.matrix.access import Access
from holdfast.channels.matrix.errors import AccessDenied, Refusal, Unreachable
from holdfast.channels.matrix.homeserver import Homeserver, open_homeserver
from holdfast.channels.matrix.incoming import CHANNEL, Bot
from holdfast.channels.matrix.receiver import Receiver
from holdfast.channels.rate_limits import RateLimits
from holdfast.channels.watermark import Watermarks
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.message import Payload
from holdfast.queue.store import Store
from holdfast.telemetry import PLATFORM_REACHABLE, PLATFORM_UNREACHABLE, POSITION_UNKNOWN
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.redaction import hide

log = logging.getLogger(__name__)

T = TypeVar("T")

AT_ONCE = timedelta(0)
SEND = "send"
"""Name of the rate limit of messages."""
TRANSACTIONS_FOR = timedelta(hours=12)
"""Time for which a homeserver surely knows a transaction id; Synapse keeps them for a day."""


class Account:
    """An account. `run` signs in, retrying while the homeserver is unreachable; then it can send.

    Every process follows the sync by itself. A message that several of them store is stored once.
    If one of them moves the position back, the sync repeats messages, which dedup drops."""

    def __init__(self, access: Access, store: Store) -> None:
        self.access = access
        self.edits = EditBudget(store, access.edits_per_minute)
        self.listening = asyncio.Event()
        self.problem: str | None = access.missing
        """Reason why it cannot work until a person repairs it; None while all is well."""
        self.device: str = ""
        self._store = store
        self._watermarks = Watermarks(store, CHANNEL)
        self._limits: RateLimits | None = None
        self._homeserver: Homeserver | None = None
        self._bot: Bot | None = None
        self._failures = 0
        self._failure: Exception | None = None
        self.opens_room = asyncio.Lock()
        """Held while the direct room of a person is looked for or created."""
        if access.token:
            hide(access.token)

    @property
    def bot(self) -> Bot | None:
        return self._bot

    @property
    def is_ready(self) -> bool:
        return self._homeserver is not None and self._bot is not None

    @property
    def outage(self) -> str | None:
        """Reason why nothing comes in for now; None while the homeserver is reachable."""
        if self._failure is None or isinstance(self._failure, StoreUnavailable):
            return None
        failure = type(self._failure).__name__
        return f"{self.access.homeserver} cannot be reached, will try again: {failure}"

    @property
    def homeserver(self) -> Homeserver:
        """The API, once signed in."""
        assert self._homeserver is not None
        return self._homeserver

    async def run(self, put: Put) -> None:
        """Receive until cancelled. Raises AccessDenied if the token is refused or missing."""
        if self.problem is not None:
            raise AccessDenied(self.problem)
        try:
            async with self._signed_in() as bot:
                receiver = Receiver(bot, self.homeserver, self._store, self.access, put)
                await self._follow(bot, receiver)
        except AccessDenied as error:
            raise AccessDenied(self.note_refusal(error)) from None
        finally:
            self.listening.set()

    def note_refusal(self, error: AccessDenied) -> str:
        """Record that the homeserver refuses the token. Returns the problem."""
        self.problem = (
            f"{self.access.name}: {self.access.homeserver} does not let the bot in, {error};"
            " see `holdfast doctor`"
        )
        return self.problem

    def note(self) -> Payload:
        """Return when and by which device a part is sent; transaction ids belong to a device."""
        return {"device": self.device, "at": time.time()}

    def remembers_transactions_of(self, note: Payload) -> bool:
        """Return whether the homeserver still knows the transaction of a note."""
        age = time.time() - float(note.get("at") or 0)
        return note.get("device") == self.device and age < TRANSACTIONS_FOR.total_seconds()

    async def within_limits(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send something, unless the homeserver has asked this account to wait.

        Raises NotNow. A wait applies to all conversations and all processes."""
        assert self._limits is not None, "only a signed-in account sends"
        await self._limits.check(SEND)
        try:
            return await send()
        except Unreachable:
            raise
        except NotNow as wait:
            await self._limits.wait(SEND, wait.delay.total_seconds())
            raise

    @asynccontextmanager
    async def _signed_in(self) -> AsyncIterator[Bot]:
        access = self.access
        async with open_homeserver(
            access.homeserver, access.token, access.limits.unreachable_delay
        ) as homeserver:
            self._bot = await self._sign_in(homeserver)
            self._limits = RateLimits(CHANNEL, self._bot.user, self._store)
            self._homeserver = homeserver
            try:
                yield self._bot
            finally:
                self._homeserver = None

    async def _sign_in(self, homeserver: Homeserver) -> Bot:
        while True:
            try:
                found = await homeserver.whoami()
                user = str(found["user_id"])
                self.device = str(found.get("device_id") or "")
                return Bot(user, await homeserver.display_name(user))
            except AccessDenied:
                raise
            except (HoldfastError, TimeoutError) as error:
                await self._pause(error)

    async def _follow(self, bot: Bot, receiver: Receiver) -> None:
        """Receive sync after sync. An error repeats the sync from the same position."""
        since = await self._position(bot)
        wait, is_gap = AT_ONCE, True
        while True:
            try:
                synced = await receiver.homeserver.sync(since, wait, self.access.limits.timeline)
                count = await receiver.receive(synced, since, is_gap=is_gap)
                await self._advance(bot, synced, count if is_gap else None, since)
            except AccessDenied:
                raise
            except Refusal as error:
                wait, is_gap = AT_ONCE, True
                if error.status != 400 or since is None:
                    await self._pause(error)
                    continue
                log.warning(Entry(POSITION_UNKNOWN, channel=CHANNEL, error=error))
                since = None
            except (HoldfastError, TimeoutError) as error:
                wait, is_gap = AT_ONCE, True
                await self._pause(error)
            else:
                since = str(synced["next_batch"])
                wait, is_gap = self.access.limits.long_poll, False
                self._recover()
                self.listening.set()

    async def _position(self, bot: Bot) -> str | None:
        while True:
            try:
                return await self._watermarks.read(bot.user)
            except HoldfastError as error:
                await self._pause(error)

    async def _advance(
        self, bot: Bot, synced: Payload, gap_messages: int | None, since: str | None
    ) -> None:
        """Store the position, after everything that it covers; note the gap that was closed."""
        if since is not None and gap_messages is not None:
            begun_at = await self._watermarks.written_at(bot.user)
            await self._watermarks.note_gap(gap_messages, begun_at)
        # An answer without rooms brought nothing, so the older position is as good.
        if synced.get("rooms") or since is None:
            await self._watermarks.write(bot.user, str(synced["next_batch"]))

    async def _pause(self, error: Exception) -> None:
        self._failures += 1
        self._failure = error
        if self._failures == 1:
            log.warning(Entry(PLATFORM_UNREACHABLE, channel=CHANNEL, error=error))
        delay = self.access.limits.backoff.delay(self._failures)
        if isinstance(error, NotNow) and not isinstance(error, Unreachable):
            delay = max(delay, error.delay)
        await asyncio.sleep(delay.total_seconds())

    def _recover(self) -> None:
        if self._failures:
            log.info(Entry(PLATFORM_REACHABLE, channel=CHANNEL, tries=self._failures + 1))
        self._failures, self._failure = 0, None
