"""The gateway of the local Discord: sessions, heartbeats, resuming, and events."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from holdfast.testing.discord.guild import APPLICATION, GUILD, Guild

DISPATCH, HEARTBEAT, IDENTIFY, RESUME, RECONNECT, INVALID, HELLO, ACK = 0, 1, 2, 6, 7, 9, 10, 11
"""Opcodes of the gateway."""
BAD_TOKEN, DISALLOWED_INTENTS = 4004, 4014
"""Codes with which Discord closes a connection for good."""
MESSAGE_CONTENT = 1 << 15
HEARTBEAT_MS = 41_250


@dataclass
class Session:
    """A session of one client. It outlives its connection, so that it can be resumed."""

    id: str
    socket: web.WebSocketResponse | None
    sent: list[dict[str, Any]] = field(default_factory=list)

    async def dispatch(self, event: str, data: dict[str, Any]) -> None:
        frame = {"op": DISPATCH, "t": event, "s": len(self.sent) + 1, "d": data}
        self.sent.append(frame)
        await self.send(frame)

    async def send(self, frame: dict[str, Any]) -> None:
        if self.socket is not None:
            try:
                await self.socket.send_json(frame)
            except (ConnectionError, RuntimeError):
                self.socket = None


class Gateway:
    """All sessions. A test can drop their connections, and forget or refuse them."""

    def __init__(
        self,
        guild: Guild,
        bot_of: Callable[[str], str | None],
        address: Callable[[], str],
    ) -> None:
        self.sessions: dict[str, Session] = {}
        self.counts: Counter[str] = Counter()
        """Connections by how they began: identify, resume or refused."""
        self.denied_intents = 0
        """Privileged intents that are off in the developer portal, as bits."""
        self.is_away = False
        """Whether new connections are refused."""
        self._guild = guild
        self._bot_of = bot_of
        self._address = address

    @property
    def connections(self) -> int:
        return sum(session.socket is not None for session in self.sessions.values())

    async def connect(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        if self.is_away and request.transport is not None:
            request.transport.abort()
            return socket
        await socket.prepare(request)
        await socket.send_json({"op": HELLO, "d": {"heartbeat_interval": HEARTBEAT_MS}})
        session: Session | None = None
        try:
            async for message in socket:
                if message.type == aiohttp.WSMsgType.TEXT:
                    session = await self._receive(socket, json.loads(message.data)) or session
        finally:
            if session is not None and session.socket is socket:
                session.socket = None
        return socket

    async def _receive(
        self, socket: web.WebSocketResponse, frame: dict[str, Any]
    ) -> Session | None:
        match frame["op"]:
            case 1:
                await socket.send_json({"op": ACK})
            case 2:
                return await self._identify(socket, frame["d"])
            case 6:
                return await self._resume(socket, frame["d"])
        return None

    async def _identify(
        self, socket: web.WebSocketResponse, given: dict[str, Any]
    ) -> Session | None:
        bot = self._bot_of(given["token"])
        if bot is None:
            self.counts["refused"] += 1
            await socket.close(code=BAD_TOKEN, message=b"Authentication failed.")
            return None
        if given["intents"] & self.denied_intents:
            self.counts["refused"] += 1
            await socket.close(code=DISALLOWED_INTENTS, message=b"Disallowed intent(s).")
            return None
        self.counts["identify"] += 1
        session = Session(f"session-{self.counts['identify']}", socket)
        self.sessions[session.id] = session
        await session.dispatch("READY", self._ready(session, bot))
        await session.dispatch("GUILD_CREATE", self._guild.as_guild())
        return session

    def _ready(self, session: Session, bot: str) -> dict[str, Any]:
        return {
            "v": 10,
            "user": self._guild.users[bot],
            "guilds": [{"id": GUILD, "unavailable": True}],
            "session_id": session.id,
            "resume_gateway_url": self._address(),
            "application": {"id": APPLICATION, "flags": 0},
        }

    async def _resume(self, socket: web.WebSocketResponse, given: dict[str, Any]) -> Session | None:
        session = self.sessions.get(given["session_id"])
        if session is None or self._bot_of(given["token"]) is None:
            self.counts["refused"] += 1
            await socket.send_json({"op": INVALID, "d": False})
            return None
        self.counts["resume"] += 1
        session.socket = socket
        for missed in session.sent[given["seq"] :]:
            await session.send(missed)
        await session.dispatch("RESUMED", {})
        return session

    async def dispatch(self, event: str, data: dict[str, Any]) -> None:
        """Send an event to every session; one without a connection keeps it for its resume."""
        for session in list(self.sessions.values()):
            await session.dispatch(event, data)

    async def ask_to_reconnect(self) -> None:
        """Ask clients to connect again, as Discord does when it moves them."""
        for session in self.sessions.values():
            await session.send({"op": RECONNECT, "d": None})

    async def invalidate(self) -> None:
        """Forget all sessions, so that clients have to identify again."""
        sessions, self.sessions = self.sessions, {}
        for session in sessions.values():
            await session.send({"op": INVALID, "d": False})

    async def close(self, code: int) -> None:
        """Close all connections with a code, as after a token was revoked."""
        for session in self.sessions.values():
            if session.socket is not None:
                await session.socket.close(code=code)

    def drop(self, *, forget: bool = False) -> None:
        """Abort all connections; with `forget`, no session can be resumed."""
        for session in self.sessions.values():
            socket, session.socket = session.socket, None
            if socket is not None and socket._req is not None and socket._req.transport:
                socket._req.transport.abort()
        if forget:
            self.sessions.clear()
