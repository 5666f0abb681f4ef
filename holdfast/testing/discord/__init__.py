"""A Discord on loopback with the real protocol: gateway, REST, rate limits, and faults.

async with LocalDiscord() as discord:
    ...  # an app with discord.token and discord.api_url
    message = await discord.mention("hello")
    [reply] = await discord.replies()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from aiohttp import web

from holdfast.testing.discord.gateway import Gateway
from holdfast.testing.discord.guild import (
    ADA,
    APPLICATION,
    BOT,
    DIRECT,
    GENERAL,
    GUILD,
    OTHER_BOT,
    Guild,
    Message,
    Room,
)
from holdfast.testing.discord.rest import Rest
from holdfast.testing.faults import Faults

TOKEN = "local.discord.token"  # noqa: S105
WAIT_WITHIN = 20.0
CHECK_INTERVAL = 0.1
MOST_REQUEST_BYTES = 64 * 1024 * 1024


class LocalDiscord:
    """One guild with a bot. Tests speak for its people and read what the bot wrote."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.token = TOKEN
        self.other_token = f"{TOKEN}.other"
        """Token of OTHER_BOT, for a process with two bots."""
        self.guild = Guild()
        self.faults = Faults()
        self.gateway = Gateway(self.guild, self._bot_of, lambda: self.gateway_address)
        self.rest = Rest(self.guild, self.faults, self._bot_of)
        self._changed = asyncio.Event()

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v10"

    @property
    def gateway_address(self) -> str:
        return f"ws://127.0.0.1:{self.port}/gateway"

    def _bot_of(self, token: str) -> str | None:
        """Return the id of the bot with a token; None if there is none."""
        return {self.token: BOT, self.other_token: OTHER_BOT}.get(token)

    async def __aenter__(self) -> LocalDiscord:
        app = web.Application(client_max_size=MOST_REQUEST_BYTES)
        app.add_routes(
            [
                *self.rest.routes(),
                web.get("/gateway", self.gateway.connect),
                web.get("/attachments/{file}/{name}", self._download),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        self.rest.base = f"http://127.0.0.1:{self.port}"
        self.rest.gateway_address = self.gateway_address
        self.rest.dispatch = self.gateway.dispatch
        self.rest.changed = self._changed.set
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.gateway.drop()
        await self._runner.cleanup()

    def go_away(self) -> None:
        """Break all connections, and refuse new ones until `come_back`."""
        self.gateway.is_away = True
        self.faults.plan("login", "drop_before", times=1_000_000)
        self.gateway.drop(forget=True)

    def come_back(self) -> None:
        """Be reachable again."""
        self.gateway.is_away = False
        self.faults.planned.pop("login", None)

    async def mention(self, text: str, *, bot: str = BOT, **where: Any) -> Message:
        """Mention the bot in a channel. Returns the message."""
        return await self.say(f"<@{bot}> {text}", **where)

    async def say(
        self, text: str, *, user: str = ADA, room: str = GENERAL, **further: Any
    ) -> Message:
        """Write a message, which the gateway sends to the bot. Returns it."""
        message = self.guild.post(self.guild.rooms[room], user, text, **further)
        await self.deliver(message)
        return message

    async def say_directly(self, text: str, *, user: str = ADA, **further: Any) -> Message:
        """Write to the bot in a direct message. Returns the message."""
        return await self.say(text, user=user, room=self.guild.direct_room(user).id, **further)

    async def deliver(self, message: Message, event: str = "MESSAGE_CREATE") -> None:
        """Send the event of a message to the bot, once more if it was sent before."""
        is_direct = self.guild.rooms[message["channel_id"]].kind == DIRECT
        await self.gateway.dispatch(event, message if is_direct else {**message, "guild_id": GUILD})

    async def announce(self, thread: Room) -> None:
        """Tell the bot of a new thread, before the messages in it."""
        channel = thread.as_channel(self.guild.users) | {"newly_created": True}
        await self.gateway.dispatch("THREAD_CREATE", channel)

    async def edit(self, message: Message, text: str) -> None:
        """Change the text of a person's message."""
        message |= {"content": text, "edited_timestamp": message["timestamp"]}
        await self.deliver(message, "MESSAGE_UPDATE")

    async def delete(self, message: Message) -> None:
        """Delete a person's message."""
        self.guild.rooms[message["channel_id"]].messages.remove(message)
        gone = {"id": message["id"], "channel_id": message["channel_id"]}
        await self.gateway.dispatch("MESSAGE_DELETE", gone)

    async def press(self, message: Message, label: str, *, user: str = ADA) -> str:
        """Press a button of the bot's message. Returns the id of the interaction."""
        buttons = [one for row in message["components"] for one in row["components"]]
        button = next(one for one in buttons if one["label"] == label)
        id = self.guild.snowflake()
        room = self.guild.rooms[message["channel_id"]]
        interaction = {
            "id": id,
            "application_id": APPLICATION,
            "type": 3,
            "token": f"token-{id}",
            "version": 1,
            "channel_id": room.id,
            "channel": room.as_channel(self.guild.users),
            **self._person(room, user),
            "message": message,
            "data": {"component_type": 2, "custom_id": button["custom_id"]},
            "entitlements": [],
            "attachment_size_limit": 1,
            "authorizing_integration_owners": {},
        }
        await self.gateway.dispatch("INTERACTION_CREATE", interaction)
        return id

    def _person(self, room: Room, user: str) -> dict[str, Any]:
        """Return a person as an interaction names them: in a server, as its member."""
        person = self.guild.users[user]
        if room.kind == DIRECT:
            return {"user": person}
        member: dict[str, Any] = {
            "user": person,
            "roles": [],
            "joined_at": None,
            "deaf": False,
            "mute": False,
        }
        return {"guild_id": GUILD, "member": {**member, "flags": 0, "permissions": "0"}}

    def bot_messages(self, room: str = GENERAL, bot: str = BOT) -> list[Message]:
        """Return the messages of the bot in a room, oldest first."""
        messages = self.guild.rooms[room].messages
        return [message for message in messages if message["author"]["id"] == bot]

    async def replies(self, room: str = GENERAL, *, count: int = 1) -> list[Message]:
        """Wait for `count` messages of the bot in a room, and return them all."""
        await self.until(lambda: len(self.bot_messages(room)) >= count)
        return self.bot_messages(room)

    async def until(self, look: Callable[[], Any], within: float = WAIT_WITHIN) -> Any:
        """Call `look` after every request, and regularly, until it returns something true."""
        async with asyncio.timeout(within):
            while not (found := look()):
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_INTERVAL):
                        await self._changed.wait()
        return found

    async def _download(self, request: web.Request) -> web.Response:
        return web.Response(body=self.guild.files[request.match_info["file"]])
