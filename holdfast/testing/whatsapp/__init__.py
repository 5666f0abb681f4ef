"""A WhatsApp Cloud API on loopback: messages, media, signed webhooks, and faults.

async with FakeWhatsApp() as whatsapp:
    ...  # an app with whatsapp.variables in its environment
    whatsapp.webhook_url = "http://127.0.0.1:3777/whatsapp/webhook"
    await whatsapp.say("hello")
    [answer] = await whatsapp.answers(1)
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import time
from contextlib import suppress
from types import TracebackType
from typing import Any

from aiohttp import ClientError, ClientSession, web

from holdfast.channels.base import Webhook
from holdfast.testing.faults import Fault, Faults
from holdfast.testing.waiting import CHECK_INTERVAL, WAIT_WITHIN, Calls

Message = dict[str, Any]

TOKEN = "fake-whatsapp-token"  # noqa: S105 - valid only here
APP_SECRET = "fake-app-secret"  # noqa: S105
VERIFY_TOKEN = "fake-verify-token"  # noqa: S105
NUMBER = "100200300"
ADA = "491701"
BOB = "491702"
NAMES = {ADA: "Ada", BOB: "Bob"}
LONGEST_TEXT = 4096


class FakeWhatsApp:
    """A local Cloud API with one number, used as an async context manager.

    `sent` holds what people received, `faults` the errors it shall cause: `messages` (also
    those that mark as read), `send`, `media`, `number` and `media_url` are its methods."""

    def __init__(self, number: str = NUMBER) -> None:
        self.number = number
        self.app_secret = APP_SECRET if number == NUMBER else f"{APP_SECRET}-{number}"
        self.faults = Faults()
        self.people = dict(NAMES)
        """Names of the people who have WhatsApp, by number."""
        self.sent: list[Message] = []
        self.taken_at: dict[str, float] = {}
        """Time of each message of the bot, by id."""
        self.typing: list[str] = []
        """Messages that were marked as read, with the sign that an answer is written."""
        self.media: dict[str, tuple[str, bytes]] = {}
        self.closed: set[str] = set()
        """People who wrote more than 24 hours ago."""
        self.token = self._given_token = TOKEN if number == NUMBER else f"{TOKEN}-{number}"
        self.webhook_url = ""
        self.receiver: Webhook | None = None
        """Takes webhooks in place of a server at `webhook_url`."""
        self.port = 0
        self._numbers = itertools.count(1)
        self._calls = Calls()
        self.until = self._calls.until

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        return {
            "WHATSAPP_TOKEN": self._given_token,
            "WHATSAPP_PHONE_NUMBER_ID": self.number,
            "WHATSAPP_APP_SECRET": self.app_secret,
            "WHATSAPP_VERIFY_TOKEN": VERIFY_TOKEN,
            "WHATSAPP_API_URL": self.api_url,
        }

    async def __aenter__(self) -> FakeWhatsApp:
        app = web.Application(client_max_size=200 * 1024 * 1024)
        number = f"/v{{version}}/{self.number}"
        app.add_routes(
            [
                web.post(f"{number}/messages", self._on("messages", self._messages)),
                web.post(f"{number}/media", self._on("media", self._upload)),
                web.get(number, self._on("number", self._number)),
                web.get("/v{version}/{media}", self._on("media_url", self._media_url)),
                web.get("/download/{media}", self._download),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    async def say(self, text: str, *, user: str = ADA) -> str:
        """Write a text. Returns its id once the webhook took it."""
        return await self.say_kind("text", {"body": text}, user=user)

    async def send_file(
        self, kind: str, content: bytes, *, name: str | None = None, user: str = ADA, **more: Any
    ) -> str:
        """Send a picture, document or voice message. Returns its id."""
        named = {"filename": name} if name else {}
        described = self.upload(name or kind, content) | named | more
        return await self.say_kind(kind, described, user=user)

    def upload(self, name: str, content: bytes) -> Message:
        """Keep a file for the bot. Returns its description for a message."""
        media = f"M{next(self._numbers)}"
        self.media[media] = (name, content)
        return {"id": media, "mime_type": "image/jpeg", "sha256": "x"}

    async def say_kind(self, kind: str, content: Message, *, user: str = ADA) -> str:
        id_, body = self.message(kind, content, user)
        await self.deliver(body)
        return id_

    def message(self, kind: str, content: Message, user: str = ADA) -> tuple[str, Message]:
        """Return a new message: its id, and the body of its webhook."""
        id_ = f"wamid.{next(self._numbers)}=="
        message = {"from": user, "id": id_, "timestamp": str(int(time.time())), "type": kind}
        name = self.people.get(user, user)
        return id_, webhook([message | {kind: content}], user, name, number=self.number)

    async def post_webhook(self, content: str) -> int:
        """Post a signed webhook once. Returns the status of the answer."""
        if self.receiver is not None:
            return (await self.receiver(content.encode(), sign(content, self.app_secret)))[0]
        async with (
            ClientSession() as session,
            session.post(
                self.webhook_url, data=content, headers=sign(content, self.app_secret)
            ) as answer,
        ):
            return answer.status

    async def deliver(self, body: Message) -> None:
        """Post a signed webhook until it is taken, as Meta does."""
        content = json.dumps(body)
        async with asyncio.timeout(WAIT_WITHIN):
            while True:
                with suppress(ClientError):
                    if await self.post_webhook(content) == 200 and not self.faults.loses_ack():
                        return
                await asyncio.sleep(CHECK_INTERVAL)

    def messages_to(self, user: str = ADA) -> list[Message]:
        """Return the messages to a person, oldest first."""
        return [one for one in self.sent if one["to"] == user]

    async def answers(self, count: int, user: str = ADA) -> list[str]:
        """Wait for `count` messages to a person. Returns the texts of all."""
        await self.until(lambda: len(self.messages_to(user)) >= count)
        return [str(one.get("text", {}).get("body", "")) for one in self.messages_to(user)]

    def _on(self, method: str, answer: Any) -> Any:
        """Return a handler that counts calls, checks the token and causes planned faults."""

        async def handle(request: web.Request) -> web.Response:
            self.faults.calls[method] += 1
            fault = self.faults.next(method)
            if fault is not None and fault.how not in ("drop_after", "slow"):
                return _fault_answer(request, fault)
            if request.headers.get("authorization") != f"Bearer {self.token}":
                return _error(401, 190, "Error validating access token", "OAuthException")
            found: web.Response = await answer(request)
            self._calls.note()
            return found if fault is None else _fault_answer(request, fault)

        return handle

    async def _messages(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body.get("status") == "read":
            self.typing.append(body["message_id"])
            return web.json_response({"success": True})
        self.faults.calls["send"] += 1
        if fault := self.faults.next("send"):
            return _fault_answer(request, fault)
        if wait := self.faults.retry_after("send", body):
            return _fault_answer(request, Fault("ratelimited", seconds=wait))
        text = body.get("text", {}).get("body", "")
        if body["to"] in self.closed:
            details = "Message failed to send because more than 24 hours have passed"
            return _error(400, 131047, "(#131047) Re-engagement message", details=details)
        if body["to"] not in self.people:
            return _error(400, 131026, "(#131026) Message undeliverable")
        if len(text.encode("utf-16-le")) // 2 > LONGEST_TEXT or (
            body["type"] == "text" and not text
        ):
            return _error(400, 100, "(#100) Invalid parameter")
        body["id"] = f"wamid.OUT{next(self._numbers)}"
        self.sent.append(body)
        self.taken_at[body["id"]] = time.time()
        contacts = [{"input": body["to"], "wa_id": body["to"]}]
        answer = {"messaging_product": "whatsapp", "contacts": contacts}
        return web.json_response(answer | {"messages": [{"id": body["id"]}]})

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        file = form["file"]
        assert isinstance(file, web.FileField)
        media = f"M{next(self._numbers)}"
        self.media[media] = (file.filename, file.file.read())
        return web.json_response({"id": media})

    async def _number(self, request: web.Request) -> web.Response:
        found = {"display_phone_number": "+49 170 0", "verified_name": "Holdfast"}
        return web.json_response(found | {"id": self.number})

    async def _media_url(self, request: web.Request) -> web.Response:
        media = request.match_info["media"]
        if media not in self.media:
            return _error(400, 100, "(#100) Unsupported get request")
        size = len(self.media[media][1])
        url = f"{self.api_url}/download/{media}"
        return web.json_response({"url": url, "file_size": size, "id": media})

    async def _download(self, request: web.Request) -> web.Response:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            raise web.HTTPForbidden
        return web.Response(body=self.media[request.match_info["media"]][1])


def webhook(
    messages: list[Message],
    user: str = ADA,
    name: str = "Ada",
    number: str = NUMBER,
    **value: Any,
) -> Message:
    """Return the body of a webhook with these messages."""
    content = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "491700", "phone_number_id": number},
        "contacts": [{"profile": {"name": name}, "wa_id": user}],
        **({"messages": messages} if messages else {}),
        **value,
    }
    changes = [{"value": content, "field": "messages"}]
    return {"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": changes}]}


def sign(body: str | bytes, secret: str = APP_SECRET) -> dict[str, str]:
    """Return the headers of a request signed by Meta."""
    content = body.encode() if isinstance(body, str) else body
    digest = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
    return {"content-type": "application/json", "x-hub-signature-256": f"sha256={digest}"}


def _error(
    status: int, code: int, message: str, kind: str = "OAuthException", details: str = ""
) -> web.Response:
    error: Message = {"message": message, "type": kind, "code": code, "fbtrace_id": "A"}
    if details:
        error["error_data"] = {"messaging_product": "whatsapp", "details": details}
    return web.json_response({"error": error}, status=status)


def _fault_answer(request: web.Request, fault: Fault) -> web.Response:
    match fault.how:
        case "ratelimited":
            answer = _error(429, 130429, "(#130429) Rate limit hit")
            answer.headers["retry-after"] = str(max(1, round(fault.seconds)))
            return answer
        case "error":
            return _error(fault.status, int(fault.code), f"(#{fault.code}) fault")
        case "status":
            return web.Response(status=fault.status, text="fault")
        case _:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
