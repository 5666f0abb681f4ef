"""A Slack on loopback with the real protocol: Web API, Socket Mode, signed requests, faults.

async with FakeSlack() as slack:
    ...  # an app with slack.bot_token, slack.app_token and slack.api_url
    ts = await slack.mention("hello")
    [reply] = await slack.replies(ts)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from aiohttp import web

from holdfast.testing.faults import Fault, Faults
from holdfast.testing.slack.methods import Methods, Refusal
from holdfast.testing.slack.sockets import Sockets
from holdfast.testing.slack.workspace import (
    ADA,
    APP,
    BOT_ID,
    DIRECT,
    GENERAL,
    Message,
    Room,
    Upload,
    Workspace,
)
from holdfast.testing.waiting import Calls

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

BOT_TOKEN = "xoxb-fake"  # noqa: S105 - valid only here
APP_TOKEN = "xapp-fake"  # noqa: S105
SIGNING_SECRET = "fake-signing-secret"  # noqa: S105


class FakeSlack:
    """A local Slack, used as an async context manager.

    `workspace` holds its channels and messages, `faults` the errors it shall cause."""

    bot_token = BOT_TOKEN
    app_token = APP_TOKEN
    signing_secret = SIGNING_SECRET

    def __init__(self, port: int = 0, **workspace: Any) -> None:
        self.workspace = Workspace(**workspace)
        self.faults = Faults()
        self.sockets = Sockets(self.faults)
        self.sockets.signing_secret = SIGNING_SECRET
        self.port = port
        self._calls = Calls()
        self.until = self._calls.until
        self.last_event: dict[str, Any] = {}
        self.last_event_id = ""
        self.routes: list[web.RouteDef] = []
        self._methods = Methods(self.workspace, self._address)
        self._deliveries = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def api_url(self) -> str:
        return self._address("/api/")

    @property
    def mention_of_bot(self) -> str:
        return f"<@{self.workspace.bot_user}>"

    def _address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def __aenter__(self) -> FakeSlack:
        app = web.Application()
        app.add_routes(
            [
                web.post("/api/{method}", self._call),
                web.get("/api/{method}", self._call),
                web.post("/upload/{file}", self._upload),
                web.get("/files/{file}", self._download),
                web.get("/link", self.sockets.connect),
                *self.routes,
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        await self._deliveries.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await self._deliveries.__aexit__(None, None, None)
        await self._runner.cleanup()

    async def mention(self, text: str, **where: Any) -> str:
        """Mention the bot in a channel. Returns the ts of the message."""
        return await self.say(f"{self.mention_of_bot} {text}", **where)

    async def say(
        self,
        text: str,
        *,
        user: str = ADA,
        channel: str = GENERAL,
        thread_ts: str | None = None,
        **further: Any,
    ) -> str:
        """Write a message. The app gets mentions and direct messages. Returns the ts."""
        room = self.workspace.rooms[channel]
        message = self.workspace.post(room, user, text, thread_ts, **further)
        event = message | {"channel": channel, "event_ts": message["ts"]}
        if room.is_direct:
            self.deliver(event | {"channel_type": "im"})
        elif self.mention_of_bot.removesuffix(">") in text:
            self.deliver(event | {"type": "app_mention"})
        return str(message["ts"])

    def file(self, name: str, content: bytes) -> dict[str, Any]:
        """Create a file that can be attached, as in say(text, files=[…])."""
        upload = Upload(f"F0{self.workspace.number()}", name, content)
        self.workspace.uploads[upload.id] = upload
        address = self._address(f"/files/{upload.id}")
        return {
            "id": upload.id,
            "name": name,
            "size": len(content),
            "url_private_download": address,
        }

    async def say_directly(self, text: str, **further: Any) -> str:
        return await self.say(text, channel=DIRECT, **further)

    def deliver(self, event: dict[str, Any], **envelope: Any) -> None:
        """Send an event to the app until it is acknowledged."""
        self.last_event, self.last_event_id = event, f"Ev{self.workspace.number()}"
        payload = {
            "token": "fake",
            "team_id": self.workspace.team,
            "api_app_id": APP,
            "event": event,
            "type": "event_callback",
            "event_id": self.last_event_id,
            "event_time": int(float(event.get("event_ts") or 0)),
            "authorizations": [
                {"team_id": self.workspace.team, "user_id": self.workspace.bot_user, "is_bot": True}
            ],
        }
        self._tasks.append(self._deliveries.create_task(self.sockets.deliver(payload | envelope)))

    async def press(
        self, room: Room, message: Message, action: dict[str, Any], user: str = ADA
    ) -> None:
        """Press a button of a message: the app gets a `block_actions` payload."""
        await self.sockets.interact(
            {
                "type": "block_actions",
                "api_app_id": APP,
                "team": {"id": self.workspace.team},
                "user": {
                    "id": user,
                    "name": self.workspace.users[user],
                    "team_id": self.workspace.team,
                },
                "channel": {"id": room.id, "name": room.name},
                "message": message,
                "actions": [action | {"action_ts": self.workspace.stamp()}],
            }
        )

    async def press_label(self, message: Message, label: str, **where: Any) -> None:
        """Press the button with this label, in the channel `general` unless told otherwise."""
        room = self.workspace.rooms[where.pop("channel", GENERAL)]
        [action] = [
            element
            for block in message.get("blocks") or ()
            for element in block.get("elements", ())
            if element["text"]["text"] == label
        ]
        await self.press(room, message, action, **where)

    def bot_messages(self, ts: str, channel: str = GENERAL) -> list[Message]:
        """Return the messages of the bot in a thread, oldest first."""
        thread = self.workspace.rooms[channel].thread(ts)
        return [message for message in thread if message.get("bot_id") == BOT_ID]

    async def replies(self, ts: str, channel: str = GENERAL, *, count: int = 1) -> list[Message]:
        """Wait for `count` messages of the bot in a thread, and return them all."""
        await self.until(lambda: len(self.bot_messages(ts, channel)) >= count)
        return self.bot_messages(ts, channel)

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        given = await _arguments(request)
        self.faults.calls[method] += 1
        fault = self.faults.next(method)
        if fault is not None and fault.how == "slow":
            await asyncio.sleep(fault.seconds)
        elif fault is not None and fault.how != "drop_after":
            return _fault_answer(request, fault)
        answer = self._answer(request, method, given)
        self._calls.note()
        if fault is not None and fault.how == "drop_after":
            return _fault_answer(request, fault)
        return answer

    def _answer(self, request: web.Request, method: str, given: dict[str, Any]) -> web.Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token != (self.app_token if method == "apps.connections.open" else self.bot_token):
            return web.json_response(
                {"ok": False, "error": "invalid_auth" if token else "not_authed"}
            )
        wait = self.faults.retry_after(method, given)
        if wait is not None:
            return _rate_limit_answer(wait)
        if method == "apps.connections.open":
            url = self._address(f"/link?ticket={self.workspace.number()}").replace("http:", "ws:")
            return web.json_response({"ok": True, "url": url})
        if method not in self._methods.by_name:
            return web.json_response({"ok": False, "error": "unknown_method"})
        try:
            answer = self._methods.by_name[method](given)
        except Refusal as refusal:
            return web.json_response({"ok": False, "error": str(refusal)})
        scopes = ",".join(sorted(self.workspace.scopes))
        return web.json_response({"ok": True, **answer}, headers={"x-oauth-scopes": scopes})

    async def _download(self, request: web.Request) -> web.Response:
        fault = self.faults.next("download")
        if fault is not None:
            return _fault_answer(request, fault)
        if request.headers.get("authorization") != f"Bearer {self.bot_token}":
            raise web.HTTPForbidden
        return web.Response(body=self.workspace.uploads[request.match_info["file"]].content)

    async def _upload(self, request: web.Request) -> web.Response:
        upload = self.workspace.uploads[request.match_info["file"]]
        upload.content = await request.read()
        return web.Response(text=f"OK - {len(upload.content)}")


async def _arguments(request: web.Request) -> dict[str, Any]:
    given: dict[str, Any] = dict(request.query)
    if request.content_type == "application/json":
        given |= json.loads(await request.text() or "{}")
    else:
        given |= dict(await request.post())
    return given


def _fault_answer(request: web.Request, fault: Fault) -> web.Response:
    match fault.how:
        case "ratelimited":
            return _rate_limit_answer(max(1, round(fault.seconds)))
        case "error":
            return web.json_response({"ok": False, "error": fault.code})
        case "status":
            return web.Response(status=fault.status, text="fault")
        case _:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()


def _rate_limit_answer(seconds: int) -> web.Response:
    return web.json_response(
        {"ok": False, "error": "ratelimited"}, status=429, headers={"retry-after": str(seconds)}
    )
