"""A Telegram on loopback with the real Bot API: long polling, webhooks, files, and faults.

async with FakeTelegram() as telegram:
    ...  # an app with telegram.token as TELEGRAM_BOT_TOKEN, telegram.api_url as TELEGRAM_API_URL
    await telegram.say("hello")
    [answer] = await telegram.answers(1)
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from copy import deepcopy
from types import TracebackType
from typing import Any

from aiohttp import ClientError, ClientSession, web

from holdfast.testing.faults import Fault, Faults
from holdfast.testing.telegram.chats import ADA, BOT, GROUP, USERNAME, Chats, Message, Upload
from holdfast.testing.telegram.methods import Methods, Refusal
from holdfast.testing.waiting import CHECK_INTERVAL, WAIT_WITHIN, Calls

SECRET = "fake-webhook-secret"  # noqa: S105
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105
Update = dict[str, Any]


class FakeTelegram:
    """A local Telegram with one bot, used as an async context manager.

    `chats` holds messages and files, `faults` the errors it shall cause."""

    webhook_secret = SECRET

    def __init__(self, port: int = 0, bot: int = BOT) -> None:
        self.chats = Chats(bot)
        self.token = f"{bot}:fake-token-of-a-bot-that-exists-only-here"
        self.faults = Faults()
        self.port = port
        self.updates: list[Update] = []
        """Updates that the bot has not confirmed."""
        self.confirmed: list[Update] = []
        self.webhook_url = ""
        self.is_revoked = False
        self._methods = Methods(self.chats)
        self._calls = Calls()
        self.until = self._calls.until
        self._polls = 0
        self._open: list[web.Request] = []
        self._update_id = 100

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> FakeTelegram:
        app = web.Application(client_max_size=100 * 1024 * 1024)
        app.add_routes(
            [
                web.route("*", "/bot{token}/{method}", self._call),
                web.get("/file/bot{token}/{path:.+}", self._download),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._polls += 1
        self._calls.note()
        await self._runner.cleanup()

    async def say(self, text: str, *, user: int = ADA, chat: int | None = None, **more: Any) -> int:
        """Write a message, by default in the private chat of the user. Returns its id."""
        message = self.chats.post(chat or user, user, text=text, **more)
        await self.deliver({"message": message})
        return int(message["message_id"])

    async def mention(self, text: str, *, chat: int = GROUP, **more: Any) -> int:
        """Mention the bot in a group. Returns the id of the message."""
        entity = {"type": "mention", "offset": 0, "length": len(USERNAME) + 1}
        return await self.say(f"@{USERNAME} {text}", chat=chat, entities=[entity], **more)

    async def edit(self, message_id: int, text: str, *, chat: int = ADA) -> None:
        """Edit a message of a person."""
        message = self.chats.find(chat, message_id)
        assert message is not None
        message["text"] = text
        await self.deliver({"edited_message": message | {"edit_date": message["date"] + 1}})

    async def send_file(
        self, kind: str, content: bytes, *, name: str | None = None, **more: Any
    ) -> int:
        """Send a photo, document or voice message to the bot. Returns its id."""
        user = more.pop("user", ADA)
        file = self.chats.upload(content, name)
        sizes = {"width": 90, "height": 90} if kind == "photo" else {}
        description: Any = file.description(name if kind == "document" else None) | sizes
        if kind in ("voice", "audio", "video"):
            description |= {"duration": 1, "width": 1, "height": 1}
        value = [description] if kind == "photo" else description
        message = self.chats.post(more.pop("chat", user), user, **{kind: value}, **more)
        await self.deliver({"message": message})
        return int(message["message_id"])

    async def press(self, message: Message, number: int = 0, *, user: int = ADA) -> None:
        """Press a button below a message of the bot."""
        row = message["reply_markup"]["inline_keyboard"][number]
        await self.press_data(message, row[0]["callback_data"], user=user)

    async def press_data(self, message: Message, data: str, *, user: int = ADA) -> None:
        query = {
            "id": str(self.chats.number()),
            "from": self.chats.user(user),
            "message": message,
            "chat_instance": "1",
            "data": data,
        }
        await self.deliver({"callback_query": query})

    async def deliver(self, update: Update) -> None:
        """Send an update to the bot, under an id of its own: by webhook, or at its next poll."""
        self._update_id += 1
        numbered = {"update_id": self._update_id, **deepcopy(update)}
        if self.webhook_url:
            await self._deliver_by_webhook(numbered)
        else:
            self.updates.append(numbered)
            self._calls.note()

    async def _deliver_by_webhook(self, update: Update) -> None:
        """Post an update until it is taken, as Telegram does."""
        headers = {SECRET_HEADER: self.webhook_secret, "content-type": "application/json"}
        async with asyncio.timeout(WAIT_WITHIN), ClientSession() as session:
            while True:
                with suppress(ClientError):
                    body = json.dumps(update)
                    async with session.post(self.webhook_url, data=body, headers=headers) as answer:
                        if answer.status == 200 and not self.faults.loses_ack():
                            self.confirmed.append(update)
                            return
                await asyncio.sleep(CHECK_INTERVAL)

    def disconnect(self) -> None:
        """Break the connections of all requests that are under way, such as a poll."""
        for request in self._open:
            if request.transport is not None:
                request.transport.abort()

    def bot_messages(self, chat: int = ADA) -> list[Message]:
        """Return the messages of the bot in a chat, oldest first."""
        return [one for one in self.chats.messages[chat] if one["from"]["id"] == self.chats.bot]

    async def answers(self, count: int, chat: int = ADA) -> list[str]:
        """Wait for `count` messages of the bot. Returns the texts of all."""
        await self.until(lambda: len(self.bot_messages(chat)) >= count)
        return [str(one.get("text", "")) for one in self.bot_messages(chat)]

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        given = await _arguments(request)
        self.faults.calls[method] += 1
        fault = self.faults.next(method)
        if fault is not None and fault.how == "slow":
            await asyncio.sleep(fault.seconds)
        elif fault is not None and fault.how != "drop_after":
            return _fault_answer(request, fault)
        self._open.append(request)
        try:
            answer = await self._answer(request.match_info["token"], method, given)
        finally:
            self._open.remove(request)
        self._calls.note()
        if fault is not None and fault.how == "drop_after":
            return _fault_answer(request, fault)
        return answer

    async def _answer(self, token: str, method: str, given: dict[str, Any]) -> web.Response:
        if token != self.token or self.is_revoked:
            return _refusal(401, "Unauthorized")
        wait = self.faults.retry_after(method, given)
        if wait is not None:
            return _rate_limit(wait)
        try:
            match method:
                case "getUpdates":
                    return _success(await self._get_updates(given))
                case "setWebhook" | "deleteWebhook":
                    self.webhook_url = str(given.get("url") or "")
                    return _success(True)
                case "getWebhookInfo":
                    pending = len(self.updates)
                    info = {"url": self.webhook_url, "pending_update_count": pending}
                    return _success(info | {"has_custom_certificate": False})
            if method not in self._methods.by_name:
                return _refusal(404, "Not Found")
            return _success(self._methods.by_name[method](given))
        except Refusal as refusal:
            return _refusal(refusal.code, str(refusal), refusal.parameters)

    async def _get_updates(self, given: dict[str, Any]) -> list[Update]:
        """Confirm what is below the offset, then wait for news. A newer poll ends this one."""
        if self.webhook_url:
            raise Refusal(
                409,
                "Conflict: can't use getUpdates method while webhook is active;"
                " use deleteWebhook to delete the webhook first",
            )
        self._polls += 1
        own, offset = self._polls, int(given.get("offset") or 0)
        self.confirmed += [one for one in self.updates if one["update_id"] < offset]
        self.updates = [one for one in self.updates if one["update_id"] >= offset]
        with suppress(TimeoutError):
            wait = float(given.get("timeout") or 0)
            await self.until(lambda: self.updates or self._polls != own, wait)
        if self._polls != own:
            raise Refusal(
                409,
                "Conflict: terminated by other getUpdates request;"
                " make sure that only one bot instance is running",
            )
        return self.updates[: int(given.get("limit") or 100)]

    async def _download(self, request: web.Request) -> web.Response:
        if request.match_info["token"] != self.token:
            raise web.HTTPNotFound
        path = request.match_info["path"]
        for upload in self.chats.uploads.values():
            if upload.path == path:
                return web.Response(body=upload.content)
        raise web.HTTPNotFound


async def _arguments(request: web.Request) -> dict[str, Any]:
    """Return the arguments of a call; a file is its name and content."""
    given: dict[str, Any] = dict(request.query)
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            given[name] = (value.filename, value.file.read())
        else:
            given[name] = value
    return given


def _success(result: object) -> web.Response:
    return web.json_response({"ok": True, "result": result})


def _refusal(code: int, description: str, parameters: dict[str, Any] | None = None) -> web.Response:
    body = {"ok": False, "error_code": code, "description": description}
    return web.json_response(body | ({"parameters": parameters} if parameters else {}), status=code)


def _rate_limit(seconds: int) -> web.Response:
    description = f"Too Many Requests: retry after {seconds}"
    return _refusal(429, description, {"retry_after": seconds})


def _fault_answer(request: web.Request, fault: Fault) -> web.Response:
    match fault.how:
        case "ratelimited":
            return _rate_limit(max(1, round(fault.seconds)))
        case "error":
            code, _, description = fault.code.partition(" ")
            return _refusal(int(code), description or "Bad Request: fault")
        case "status":
            return web.Response(status=fault.status, text="fault")
        case _:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()


__all__ = ["ADA", "BOT", "GROUP", "USERNAME", "FakeTelegram", "Upload"]
