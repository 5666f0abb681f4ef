"""A chat page for the fake Slack: static files with a strict content security policy."""

from __future__ import annotations

from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import ADA, Room

TYPES = {
    "index.html": "text/html",
    "chat.js": "text/javascript",
    "mrkdwn.js": "text/javascript",
    "chat.css": "text/css",
}
LONGEST = 4000
LOOPBACK = ("127.0.0.1", "localhost")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def with_page(slack: FakeSlack) -> FakeSlack:
    """Add a page at /, where a person can write to the bot. Returns the same server."""
    page = Page(slack)
    slack.routes += [
        web.get("/", page.file),
        web.get("/chat/rooms", page.rooms),
        web.post("/chat/say", page.say),
        web.post("/chat/press", page.press),
        web.get("/{file}", page.file),
    ]
    return slack


class Page:
    """Serves the page to this machine and to its own origin only."""

    def __init__(self, slack: FakeSlack) -> None:
        self._slack = slack

    async def file(self, request: web.Request) -> web.Response:
        _require_own(request)
        name = request.match_info.get("file", "index.html")
        if name not in TYPES:
            raise web.HTTPNotFound
        body = files("holdfast.testing.slack").joinpath("static", name).read_bytes()
        return web.Response(body=body, content_type=TYPES[name], charset="utf-8", headers=HEADERS)

    async def rooms(self, request: web.Request) -> web.Response:
        _require_own(request)
        workspace = self._slack.workspace
        answer = {
            "bot": {"id": workspace.bot_user, "name": workspace.users[workspace.bot_user]},
            "users": workspace.users,
            "statuses": workspace.statuses,
            "rooms": [_room(room) for room in workspace.rooms.values()],
        }
        return web.json_response(answer, headers=HEADERS)

    async def say(self, request: web.Request) -> web.Response:
        _require_own(request)
        given = await request.json()
        text, channel, thread_ts = (
            str(given.get(name) or "") for name in ("text", "channel", "thread_ts")
        )
        if not text.strip() or len(text) > LONGEST or channel not in self._slack.workspace.rooms:
            raise web.HTTPBadRequest(text="needs a text of at most 4,000 characters and a channel")
        ts = await self._slack.say(
            self._as_client_sends(text), user=ADA, channel=channel, thread_ts=thread_ts or None
        )
        return web.json_response({"ts": ts}, headers=HEADERS)

    async def press(self, request: web.Request) -> web.Response:
        """Tell the app which button of a message a person pressed."""
        _require_own(request)
        given = await request.json()
        room = self._slack.workspace.rooms.get(str(given.get("channel") or ""))
        message = None if room is None else room.find(str(given.get("ts") or ""))
        if room is None or message is None or not isinstance(given.get("action"), dict):
            raise web.HTTPBadRequest(text="needs the channel and ts of a message, and an action")
        await self._slack.press(room, message, given["action"])
        return web.json_response({"ok": True}, headers=HEADERS)

    def _as_client_sends(self, text: str) -> str:
        """Return a text as Slack's client sends it: escaped, with the bot's id for its name."""
        workspace = self._slack.workspace
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return text.replace(f"@{workspace.users[workspace.bot_user]}", f"<@{workspace.bot_user}>")


def _room(room: Room) -> dict[str, Any]:
    return {
        "id": room.id,
        "name": room.name if room.is_direct else f"#{room.name}",
        "direct": room.is_direct,
        "messages": room.messages,
    }


def _require_own(request: web.Request) -> None:
    """Refuse foreign Host and Origin headers, against DNS rebinding."""
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname
    origin = request.headers.get("origin")
    if host not in LOOPBACK or (origin is not None and urlsplit(origin).hostname not in LOOPBACK):
        raise web.HTTPForbidden
