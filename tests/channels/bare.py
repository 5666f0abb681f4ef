"""A minimal Slack with four methods and the smallest answers that the client accepts."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from types import TracebackType
from typing import Any

from aiohttp import web

TEAM, BOT, CHANNEL, TS = "T1BARE", "U1BARE", "C1BARE", "1700000000.000100"
FULL = {"ok": True, "team_id": TEAM, "user_id": BOT, "bot_id": "B1BARE", "user": "bot"}
TERSE = {"ok": True}
UNKNOWN = {"ok": False, "error": "unknown_method"}


class BareSlack:
    """`posted` is what became visible; what is not in `answers` is an unknown method."""

    def __init__(self, who: dict[str, Any]) -> None:
        self.answers: dict[str, dict[str, Any]] = {"auth.test": who, "chat.postMessage": TERSE}
        self.posted: list[dict[str, Any]] = []
        self.calls: Counter[str] = Counter()
        self.acked: asyncio.Event = asyncio.Event()
        self.refuse_after_posting = 0
        where = {"channel": CHANNEL, "ts": TS, "event_ts": TS}
        self.mention = {
            "type": "app_mention",
            "user": "U1ADA",
            "text": f"<@{BOT}> ask <@U1EVE>",
        } | where

    async def __aenter__(self) -> BareSlack:
        app = web.Application()
        calls = [web.post("/api/{method}", self._call), web.get("/api/{method}", self._call)]
        app.add_routes([*calls, web.get("/socket", self._connect)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._host = f"127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    @property
    def api_url(self) -> str:
        return f"http://{self._host}/api/"

    async def _call(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        self.calls[method] += 1
        if method == "apps.connections.open":
            return web.json_response({"ok": True, "url": f"ws://{self._host}/socket"})
        if method == "chat.postMessage":
            return await self._post(request)
        if method not in self.answers and request.method == "GET":
            raise web.HTTPNotFound
        return web.json_response(self.answers.get(method, UNKNOWN))

    async def _post(self, request: web.Request) -> web.Response:
        given = (
            await request.json()
            if request.content_type == "application/json"
            else dict(await request.post())
        )
        self.posted.append(given)
        if len(self.posted) <= self.refuse_after_posting:
            return web.Response(status=500)
        return web.json_response(self.answers["chat.postMessage"])

    async def _connect(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello"})
        payload = {
            "type": "event_callback",
            "team_id": TEAM,
            "event_id": "Ev1",
            "event": self.mention,
        }
        if not self.acked.is_set():
            await socket.send_json({"envelope_id": "1", "type": "events_api", "payload": payload})
        async for message in socket:
            if (
                message.type is web.WSMsgType.TEXT
                and json.loads(message.data).get("envelope_id") == "1"
            ):
                self.acked.set()
        return socket

    def has_replies(self, *, text: str) -> None:
        """From now on its threads can be read: one message of the bot, without metadata."""
        mine = {
            "user": BOT,
            "bot_id": "B1BARE",
            "text": text,
            "ts": "1700000001.000100",
            "thread_ts": TS,
        }
        self.answers["conversations.replies"] = {"ok": True, "messages": [mine]}
