"""One bot: signs in, receives over the gateway, and reports its problems."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from datetime import timedelta

import discord
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

from holdfast.channels.base import NotNow
from holdfast.channels.budget import EditBudget, SettingsStore
from holdfast.channels.discord.access import Access
from holdfast.channels.discord.errors import AccessDenied, translating
from holdfast.telemetry import (
    CHANNEL_EVENT_FAILED,
    CHANNEL_REFUSED,
    PLATFORM_REACHABLE,
    PLATFORM_UNREACHABLE,
)
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.redaction import hide

log = logging.getLogger(__name__)
# The library logs what we log ourselves, and the lack of voice, which nothing here uses.
logging.getLogger("discord").setLevel(logging.ERROR)

GATEWAY = DiscordWebSocket.DEFAULT_GATEWAY
LONGEST_RATE_LIMIT = 30.0
"""Seconds that the library waits for a rate limit; a response that waits longer is snoozed."""
CLOSE_WITHIN = 2.0
SIGN_IN_DELAY = timedelta(seconds=1)
"""Delay of a response while the bot signs in."""
REPAIR_DELAY = timedelta(minutes=1)
"""Delay of a response while a person has to repair the bot."""
PING_MENTIONS = discord.AllowedMentions(everyone=False, roles=False, users=True, replied_user=True)
"""An agent may call people, but neither everybody nor a role."""
BAD_TOKEN, BAD_INTENTS = 4004, (4013, 4014)
"""Codes with which the gateway closes for good."""


class Gateway(discord.Client):
    """The client of one session. It hands what it receives to its listener."""

    def __init__(self, access: Access) -> None:
        intents = discord.Intents(guilds=True, guild_messages=True, dm_messages=True)
        intents.message_content = access.message_content
        super().__init__(
            intents=intents,
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            guild_ready_timeout=access.limits.guilds_within.total_seconds(),
            max_ratelimit_timeout=LONGEST_RATE_LIMIT,
            allowed_mentions=PING_MENTIONS,
        )

    async def on_error(self, event: str, /, *args: object, **further: object) -> None:
        """Log a failure of ours in a listener, with its traceback."""
        log.exception(Entry(CHANNEL_EVENT_FAILED, channel="discord", listener=event))


Listen = Callable[[Gateway], AbstractContextManager[None]]


class Bot:
    """An account. `run` keeps it connected; a response waits while it is not."""

    def __init__(self, access: Access, store: SettingsStore | None = None) -> None:
        self.access = access
        self.edits = EditBudget(store)
        self.listening = asyncio.Event()
        self.problem: str | None = None
        """Reason why it cannot work until a person repairs it; None while all is well."""
        self.outage: str | None = None
        """Reason why Discord cannot be reached; None while it can."""
        self._client: Gateway | None = None
        self._failures = 0
        if access.token:
            hide(access.token)

    @property
    def user_id(self) -> int | None:
        user = None if self._client is None else self._client.user
        return None if user is None else user.id

    @property
    def client(self) -> Gateway:
        """The signed-in client. Raises NotNow if there is none."""
        if self._client is None:
            raise NotNow(REPAIR_DELAY if self.problem else SIGN_IN_DELAY)
        return self._client

    def room(self, id: int) -> discord.PartialMessageable:
        """Return a room for sending and reading. Raises NotNow while the bot is not signed in."""
        return self.client.get_partial_messageable(id)

    def is_in_server(self, room: int) -> bool:
        """Return whether a room belongs to a server, and not to direct messages."""
        found = self.client.get_channel(room)
        return isinstance(found, discord.abc.GuildChannel | discord.Thread)

    def translating(self) -> AbstractContextManager[None]:
        """Translate Discord's errors in the block."""
        return translating(self.access.limits.unreachable_delay)

    async def run(self, listen: Listen) -> None:
        """Stay connected until cancelled. `listen` registers for the events of each client."""
        limits = self.access.limits
        while True:
            try:
                await self._run_session(listen)
                delay = limits.reconnect_backoff.delay(1)
            except AccessDenied as error:
                self._note_problem(str(error))
                delay = limits.refused_retry
            except Exception as error:  # noqa: BLE001 - any failure may pass
                self._note_outage(error)
                delay = limits.reconnect_backoff.delay(self._failures)
            await asyncio.sleep(delay.total_seconds())

    def note_connected(self) -> None:
        """Note that messages come in."""
        if self._failures or self.problem:
            log.info(Entry(PLATFORM_REACHABLE, channel="discord", tries=self._failures + 1))
        self._failures, self.problem, self.outage = 0, None, None
        self.listening.set()

    def _note_problem(self, problem: str) -> None:
        if problem != self.problem:
            log.error(Entry(CHANNEL_REFUSED, channel="discord", problem=problem))
        self.problem = problem
        self.listening.set()

    def _note_outage(self, error: Exception) -> None:
        self._failures += 1
        self.outage = f"{self.access.name}: Discord is out of reach: {describe(error)}"
        if self._failures == 1:
            log.warning(Entry(PLATFORM_UNREACHABLE, channel="discord", error=error))

    async def _run_session(self, listen: Listen) -> None:
        """Sign in and receive until the connection is lost for good. Raises AccessDenied."""
        name = self.access.name
        if not self.access.token:
            raise AccessDenied(f"{name} is not set: Discord needs the token of its bot")
        try:
            async with signed_in(self.access) as client:
                self._client = client
                with listen(client):
                    # The library resumes sessions by itself. After anything else, start anew.
                    await client.connect(reconnect=False)
        except discord.LoginFailure:
            raise AccessDenied(f"{name}: Discord refuses the token (401); reset it") from None
        except discord.PrivilegedIntentsRequired:
            raise AccessDenied(_intent_problem(name)) from None
        except discord.ConnectionClosed as error:
            if error.code == BAD_TOKEN:
                raise AccessDenied(f"{name}: Discord refuses the token (4004)") from None
            if error.code in BAD_INTENTS:
                raise AccessDenied(_intent_problem(name)) from None
            raise
        finally:
            self._client = None


def describe(error: Exception) -> str:
    """Return the first line of an error, or its class if it has no text."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def _intent_problem(name: str) -> str:
    return (
        f"{name}: Discord refuses the Message Content Intent (4014); turn it on in the developer"
        " portal under Bot, or set message_content = false"
    )


@asynccontextmanager
async def signed_in(access: Access) -> AsyncIterator[Gateway]:
    """Open a client that is signed in but not yet connected to the gateway."""
    # The library has no parameter for its addresses, only these attributes of its classes.
    Route.BASE = access.api_url
    client = Gateway(access)
    try:
        await client.login(access.token)
        DiscordWebSocket.DEFAULT_GATEWAY = (
            await _local_gateway(client) if access.is_local else GATEWAY
        )
        yield client
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                await client.close()


async def _local_gateway(client: Gateway) -> yarl.URL:
    _, address, _ = await client.http.get_bot_gateway()
    return yarl.URL(address)
