"""One bot: signs in and calls the Bot API."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar
from weakref import WeakValueDictionary

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import ClientDecodeError, TelegramAPIError
from aiogram.methods import GetMe, TelegramMethod
from aiogram.types import User
from aiogram.utils.token import TokenValidationError

from holdfast.channels.base import NotNow
from holdfast.channels.telegram.access import Access
from holdfast.channels.telegram.errors import (
    TOKEN_CODES,
    AccessDenied,
    Refusal,
    Unreachable,
    error_code,
    translate_error,
)
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.telemetry import CHANNEL_REFUSED, PLATFORM_REACHABLE, PLATFORM_UNREACHABLE
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.redaction import hide

log = logging.getLogger(__name__)

T = TypeVar("T")

CHANNEL = "telegram"

REQUEST_WITHIN = 30.0
"""Seconds for an ordinary request."""
MOST_WAITS = 1000
"""Maximum number of chats whose rate limits are remembered."""


class TelegramBot:
    """A bot of Telegram. `sign_in` retries while Telegram is unreachable; then it can be used."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.problem: str | None = None
        """Reason why it cannot work until a person repairs it; None while all is well."""
        self.outage: str | None = None
        """Reason why Telegram cannot be reached; None while it can."""
        self.listening = asyncio.Event()
        """Set once messages can come in, or once only a person can make that happen."""
        self._user: User | None = None
        self._signed_in = asyncio.Event()
        self._client: Bot | None = None
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._wait_until: dict[str, float] = {}
        for secret in (access.token, access.webhook_secret):
            if secret:
                hide(secret)

    @property
    def id(self) -> int | None:
        """The bot's own id, with which its token begins; None for a malformed one."""
        first = self.access.token.partition(":")[0]
        return int(first) if first.isascii() and first.isdigit() and len(first) < 20 else None

    @property
    def user(self) -> User | None:
        """The bot as Telegram describes it; None before the sign-in."""
        return self._user

    @property
    def client(self) -> Bot:
        assert self._client is not None, "the bot is used outside of `open`"
        return self._client

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keep a connection during the block. Raises AccessDenied for a malformed token."""
        server = TelegramAPIServer.from_base(self.access.api_url)
        session = AiohttpSession(api=server, timeout=REQUEST_WITHIN)
        try:
            self._client = Bot(self.access.token, session=session)
        except TokenValidationError:
            raise self.deny("is not set, or is not the token of a Telegram bot") from None
        try:
            yield
        finally:
            self._signed_in.clear()
            await session.close()

    async def ready(self) -> User:
        """Wait for the sign-in. Raises AccessDenied if Telegram refuses the token."""
        if self.problem is not None and self._user is None:
            raise AccessDenied(self.problem)
        await self._signed_in.wait()
        assert self._user is not None
        return self._user

    async def sign_in(self) -> User:
        """Ask for the bot's own account until Telegram answers."""
        failures = 0
        while True:
            try:
                self._user = await self._request(GetMe())
                break
            except AccessDenied as error:
                await self.wait_for_repair(error)
            except HoldfastError as error:
                failures += 1
                await self.pause(failures, error)
        self.problem = None
        self.resume(failures)
        self._signed_in.set()
        return self._user

    def deny(self, why: str) -> AccessDenied:
        """Note that a person has to repair the bot, and log it once."""
        problem = f"{self.access.name}{'' if why.startswith(':') else ' '}{why}"
        if self.problem != problem:
            log.error(Entry(CHANNEL_REFUSED, channel=CHANNEL, problem=problem))
        self.problem = problem
        return AccessDenied(problem)

    async def wait_for_repair(self, error: AccessDenied) -> None:
        """Note a refused token, and wait before asking again."""
        self.deny(f": {error}; see `holdfast doctor`")
        self.listening.set()
        await asyncio.sleep(self.access.limits.backoff.most.total_seconds())

    async def pause(self, failures: int, error: Exception) -> None:
        """Wait before the next try. An outage is logged once."""
        if not isinstance(error, StoreUnavailable):
            reason = " ".join(str(error).split())[:200]
            self.outage = f"{self.access.name}: Telegram is out of reach: {reason}"
        if failures == 1:
            log.warning(Entry(PLATFORM_UNREACHABLE, channel=CHANNEL, error=error))
        delay = self.access.limits.backoff.delay(failures)
        if isinstance(error, NotNow) and not isinstance(error, Unreachable):
            delay = max(delay, error.delay)
        await asyncio.sleep(delay.total_seconds())

    def resume(self, failures: int) -> None:
        """Note the end of an outage, after this many failed tries."""
        self.outage = None
        if failures:
            log.info(Entry(PLATFORM_REACHABLE, channel=CHANNEL, tries=failures + 1))

    async def call(self, method: TelegramMethod[T], *, chat: str = "") -> T:
        """Call a method, one at a time for each chat.

        Raises NotNow, Undeliverable or Refusal. If the token is refused, notes the problem and
        raises NotNow."""
        if self.problem is not None and self._user is None:
            raise NotNow(self.access.limits.repair_delay)
        if not self._signed_in.is_set():
            raise NotNow(timedelta(seconds=1))
        async with self._locks.setdefault(chat, asyncio.Lock()):
            self._check_wait(chat)
            try:
                found = await self._request(method)
            except Unreachable:
                raise
            except NotNow as wait:
                self._keep_wait(chat, wait.delay)
                raise
            except AccessDenied as error:
                self.deny(f": {error}; see `holdfast doctor`")
                raise NotNow(self.access.limits.repair_delay) from None
        return found

    def _check_wait(self, chat: str) -> None:
        left = self._wait_until.get(chat, 0.0) - time.monotonic()
        if left > 0:
            raise NotNow(timedelta(seconds=left))

    def _keep_wait(self, chat: str, delay: timedelta) -> None:
        now = time.monotonic()
        if len(self._wait_until) >= MOST_WAITS:
            self._wait_until = {one: at for one, at in self._wait_until.items() if at > now}
        if len(self._wait_until) < MOST_WAITS:
            self._wait_until[chat] = now + delay.total_seconds()

    async def _request(self, method: TelegramMethod[T], within: int | None = None) -> T:
        name = type(method).__api_method__
        try:
            return await self.client(method, request_timeout=within)
        except TelegramAPIError as error:
            if isinstance(method, GetMe) and error_code(error) in TOKEN_CODES:
                raise AccessDenied(f"Telegram refuses the token: {error.message}") from None
            delay = self.access.limits.unreachable_delay
            raise translate_error(name, error, delay) from error
        except ClientDecodeError as error:
            raise Refusal(name, 0, "the answer is not from Telegram") from error

    async def poll(self, method: TelegramMethod[T], within: timedelta) -> T:
        """Call a method that Telegram may answer late."""
        return await self._request(method, int(within.total_seconds() + REQUEST_WITHIN))

    def __repr__(self) -> str:
        return f"TelegramBot({self.access.name})"
