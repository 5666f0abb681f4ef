"""The REST API of the local Discord, with the error bodies that Discord documents."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from holdfast.testing.discord.guild import (
    APPLICATION,
    BOT,
    DIRECT,
    PUBLIC_THREAD,
    Guild,
    Message,
    Room,
)
from holdfast.testing.faults import Fault, Faults

LONGEST_CONTENT = 2000
PAGE, MOST_PER_PAGE = 50, 100
MESSAGE_CONTENT_LIMITED = 1 << 19
"""Flag of an application whose Message Content Intent is on in the developer portal."""
ERRORS = {
    10003: (404, "Unknown Channel"),
    10008: (404, "Unknown Message"),
    40060: (400, "Interaction has already been acknowledged."),
    50001: (403, "Missing Access"),
    50005: (403, "Cannot edit a message authored by another user"),
    50006: (400, "Cannot send an empty message"),
    50007: (403, "Cannot send messages to this user"),
    50013: (403, "Missing Permissions"),
    50035: (400, "Invalid Form Body"),
    160004: (400, "A thread has already been created for this message"),
}
"""Statuses and messages of Discord's error codes."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Dispatch = Callable[[str, dict[str, Any]], Awaitable[None]]


class Refusal(Exception):
    """A request that Discord refuses with one of its codes."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def json_response(
    answer: object, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """Return JSON with the content type as Discord writes it: without a charset."""
    body = json.dumps(answer).encode()
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def error_response(code: int) -> web.Response:
    status, message = ERRORS.get(code, (400, "Error"))
    return json_response({"code": code, "message": message}, status=status)


def rate_limit_response(seconds: float) -> web.Response:
    """Return Discord's 429. Its clients ignore one without the header Via."""
    body = {"message": "You are being rate limited.", "retry_after": seconds, "global": False}
    headers = {
        "Via": "1.1 local",
        "Retry-After": str(round(seconds) or 1),
        "X-RateLimit-Limit": "5",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset-After": f"{seconds:.3f}",
        "X-RateLimit-Bucket": "local",
    }
    return json_response(body, status=429, headers=headers)


class Rest:
    """The requests that a bot makes, by name for faults and counts."""

    def __init__(self, guild: Guild, faults: Faults, bot_of: Callable[[str], str | None]) -> None:
        self.faults = faults
        self.typing: list[str] = []
        """Rooms in which the bot showed that it types, once for each request."""
        self.whispers: list[str] = []
        """Texts that only the person who pressed a button can see."""
        self.nonce_seconds = 300.0
        """Seconds for which a nonce is compared. Discord says: a few minutes."""
        self.answered_interactions: dict[str, dict[str, Any]] = {}
        self.application_flags = MESSAGE_CONTENT_LIMITED
        self.gateway_address = ""
        self.base = ""
        self.dispatch: Dispatch | None = None
        self.changed: Callable[[], None] = lambda: None
        self._guild = guild
        self._bot_of = bot_of
        self._nonces: dict[str, tuple[float, Message]] = {}

    def routes(self) -> list[web.RouteDef]:
        room, message = "/channels/{room}", "/channels/{room}/messages/{message}"
        listed: list[tuple[str, str, str, Handler]] = [
            ("GET", "/users/@me", "login", self._me),
            ("GET", "/oauth2/applications/@me", "application", self._application),
            ("GET", "/gateway/bot", "gateway", self._gateway),
            ("GET", "/gateway", "gateway", self._gateway),
            ("POST", "/users/@me/channels", "open_direct", self._open_direct),
            ("GET", room, "channel", self._channel),
            ("GET", f"{room}/messages", "list_messages", self._list),
            ("POST", f"{room}/messages", "create_message", self._create),
            ("GET", message, "get_message", self._get),
            ("PATCH", message, "edit_message", self._edit),
            ("DELETE", message, "delete_message", self._delete),
            ("POST", f"{message}/threads", "start_thread", self._start_thread),
            ("POST", f"{room}/typing", "typing", self._type),
            ("POST", "/interactions/{id}/{token}/callback", "interaction", self._interaction),
            ("POST", "/webhooks/{id}/{token}", "interaction", self._follow_up),
        ]
        return [
            web.route(method, f"/api/v10{path}", self._with_faults(name, handler))
            for method, path, name, handler in listed
        ]

    def _with_faults(self, name: str, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.faults.calls[name] += 1
            fault = self.faults.next(name)
            if fault is not None and fault.how != "drop_after":
                return _fault_response(request, fault)
            answer = await self._answer(request, name, handler)
            self.changed()
            return answer if fault is None else _fault_response(request, fault)

        return handle

    async def _answer(
        self, request: web.Request, name: str, handler: Handler
    ) -> web.StreamResponse:
        if name != "interaction" and self._bot(request) is None:
            return json_response({"message": "401: Unauthorized", "code": 0}, status=401)
        wait = self.faults.retry_after(name, dict(request.match_info))
        if wait is not None:
            return rate_limit_response(wait)
        try:
            return await handler(request)
        except Refusal as refusal:
            return error_response(refusal.code)

    async def _me(self, request: web.Request) -> web.Response:
        return json_response(self._guild.users[str(self._bot(request))])

    def _bot(self, request: web.Request) -> str | None:
        """Return the id of the bot that asks; None if its token is refused."""
        return self._bot_of(request.headers.get("authorization", "").removeprefix("Bot "))

    async def _application(self, request: web.Request) -> web.Response:
        owner = self._guild.users[str(self._bot(request))]
        described = {"id": APPLICATION, "name": "holdfast", "description": "", "icon": None}
        flags = {"bot_public": False, "bot_require_code_grant": False, "verify_key": ""}
        owned = {"owner": owner, "team": None, "flags": self.application_flags}
        return json_response({**described, **flags, **owned})

    async def _gateway(self, request: web.Request) -> web.Response:
        limit = {"total": 1000, "remaining": 999, "reset_after": 0, "max_concurrency": 1}
        answer = {"url": self.gateway_address, "shards": 1, "session_start_limit": limit}
        return json_response(answer)

    async def _open_direct(self, request: web.Request) -> web.Response:
        person = str((await request.json())["recipient_id"])
        if person not in self._guild.users:
            raise Refusal(50007)
        return json_response(self._guild.direct_room(person).as_channel(self._guild.users))

    async def _channel(self, request: web.Request) -> web.Response:
        return json_response(self._room(request).as_channel(self._guild.users))

    def _room(self, request: web.Request) -> Room:
        room = self._guild.rooms.get(request.match_info["room"])
        if room is None:
            raise Refusal(10003)
        return room

    def _message(self, request: web.Request) -> tuple[Room, Message]:
        room = self._room(request)
        message = room.find(request.match_info["message"])
        if message is None:
            raise Refusal(10008)
        return room, message

    async def _list(self, request: web.Request) -> web.Response:
        """Return a page, newest first. As in Discord, no message shows its nonce."""
        messages = self._room(request).messages
        most = min(int(request.query.get("limit", PAGE)), MOST_PER_PAGE)
        if "after" in request.query:
            after = int(request.query["after"])
            found = [one for one in messages if int(one["id"]) > after][:most]
        else:
            before = int(request.query.get("before", 1 << 63))
            found = [one for one in messages if int(one["id"]) < before][-most:]
        return json_response([_without_nonce(one) for one in reversed(found)])

    async def _get(self, request: web.Request) -> web.Response:
        return json_response(_without_nonce(self._message(request)[1]))

    async def _create(self, request: web.Request) -> web.Response:
        room = self._room(request)
        given, uploads = await _body(request)
        nonce = str(given.get("nonce") or "")
        if nonce and given.get("enforce_nonce"):
            created_at, known = self._nonces.get(nonce, (0.0, None))
            if known is not None and time.monotonic() - created_at < self.nonce_seconds:
                return json_response(known)
        _check_content(given, uploads)
        further = {key: given[key] for key in ("components", "nonce") if given.get(key)}
        if reference := given.get("message_reference"):
            answered = str(reference["message_id"])
            further["message_reference"] = {"message_id": answered, "channel_id": room.id}
        attachments = [self.attachment(name, content) for name, content in uploads]
        author, content = str(self._bot(request)), str(given.get("content") or "")
        message = self._guild.post(room, author, content, attachments=attachments, **further)
        if nonce:
            self._nonces[nonce] = (time.monotonic(), message)
        await self._dispatch("MESSAGE_CREATE", message)
        return json_response(message)

    async def _edit(self, request: web.Request) -> web.Response:
        _, message = self._message(request)
        given, uploads = await _body(request)
        if message["author"]["id"] != self._bot(request):
            raise Refusal(50005)
        _check_content({**message, **given}, uploads)
        message |= {key: given[key] for key in ("content", "components") if key in given}
        await self._dispatch("MESSAGE_UPDATE", message)
        return json_response(message)

    async def _delete(self, request: web.Request) -> web.Response:
        room, message = self._message(request)
        room.messages.remove(message)
        await self._dispatch("MESSAGE_DELETE", {"id": message["id"], "channel_id": room.id})
        return web.Response(status=204)

    async def _start_thread(self, request: web.Request) -> web.Response:
        room, message = self._message(request)
        if message["id"] in self._guild.rooms or room.kind in (DIRECT, PUBLIC_THREAD):
            raise Refusal(160004)
        name = str((await request.json())["name"])
        thread = self._guild.thread(room.id, name, message["id"])
        return json_response(thread.as_channel(self._guild.users), status=201)

    async def _type(self, request: web.Request) -> web.Response:
        self.typing.append(self._room(request).id)
        return web.Response(status=204)

    async def _interaction(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        if id in self.answered_interactions:
            raise Refusal(40060)
        self.answered_interactions[id], _ = await _body(request)
        return json_response({"interaction": {"id": id, "type": 3}})

    async def _follow_up(self, request: web.Request) -> web.Response:
        """Show a message to the person who pressed a button, and to nobody else."""
        given, _ = await _body(request)
        self.whispers.append(str(given.get("content")))
        room = Room("0", "nowhere")
        return json_response(self._guild.post(room, BOT, self.whispers[-1]))

    def attachment(self, name: str, content: bytes) -> dict[str, Any]:
        """Keep a file and return its attachment object."""
        id = self._guild.snowflake()
        self._guild.files[id] = content
        url = f"{self.base}/attachments/{id}/{name}"
        return {"id": id, "filename": name, "size": len(content), "url": url, "proxy_url": url}

    async def _dispatch(self, event: str, data: dict[str, Any]) -> None:
        if self.dispatch is not None:
            await self.dispatch(event, data)


def _check_content(given: dict[str, Any], uploads: list[tuple[str, bytes]]) -> None:
    content = str(given.get("content") or "")
    if len(content) > LONGEST_CONTENT:
        raise Refusal(50035)
    if not content and not uploads and not given.get("attachments"):
        raise Refusal(50006)


def _without_nonce(message: Message) -> Message:
    return {key: value for key, value in message.items() if key != "nonce"}


async def _body(request: web.Request) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    """Return the JSON of a request and its files."""
    if request.content_type != "multipart/form-data":
        return json.loads(await request.text() or "{}"), []
    given: dict[str, Any] = {}
    uploads: list[tuple[str, bytes]] = []
    form = await request.post()
    for name, value in form.items():
        if isinstance(value, web.FileField):
            uploads.append((value.filename, value.file.read()))
        elif name == "payload_json":
            given = json.loads(value)
    return given, uploads


def _fault_response(request: web.Request, fault: Fault) -> web.Response:
    match fault.how:
        case "ratelimited":
            return rate_limit_response(fault.seconds)
        case "error":
            return error_response(int(fault.code))
        case "status":
            return web.Response(status=fault.status, text="fault")
        case _:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
