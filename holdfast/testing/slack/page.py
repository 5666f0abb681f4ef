"""A chat page for the fake Slack: plain files, no foreign address, nothing that runs but its own script."""

from __future__ import annotations

from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import ADA, Room

TYPES = {"index.html": "text/html", "chat.js": "text/javascript", "chat.css": "text/css"}
LONGEST = 4000
LOOPBACK = ("127.0.0.1", "localhost")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def with_page(slack: FakeSlack) -> FakeSlack:
    """The same, with a page at / where a person can write to the bot."""
    page = Page(slack)
    slack.routes += [
        web.get("/", page.file),
        web.get("/chat/rooms", page.rooms),
        web.post("/chat/say", page.say),
        web.get("/{file}", page.file),
    ]
    return slack


class Page:
    """Only for who sits at this machine, and for pages that come from here."""

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
            raise web.HTTPBadRequest(
                text="a text of at most 4,000 characters and a channel are needed"
            )
        ts = await self._slack.say(
            self._named(text), user=ADA, channel=channel, thread_ts=thread_ts or None
        )
        return web.json_response({"ts": ts}, headers=HEADERS)

    def _named(self, text: str) -> str:
        """As Slack's own client sends it: signs are escaped, and the name of the bot is its id."""
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
    """A page of a foreign name that was made to point here keeps that name in Host and Origin."""
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname
    origin = request.headers.get("origin")
    if host not in LOOPBACK or (origin is not None and urlsplit(origin).hostname not in LOOPBACK):
        raise web.HTTPForbidden
