"""Socket Mode and signed requests of the fake Slack: events go out, and go out again until they are acknowledged."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from holdfast.testing.slack.faults import Faults
from holdfast.testing.slack.workspace import APP


@dataclass
class Sending:
    """An event on its way: how often it was sent, and whether it has been acknowledged."""

    payload: dict[str, Any]
    tries: int = 0
    acked: asyncio.Event = field(default_factory=asyncio.Event)


class Sockets:
    """The open connections of apps. An event goes to one of them, and to another if no acknowledgement comes."""

    def __init__(self, faults: Faults) -> None:
        self.ack_within = 3.0
        self.redeliveries = 100
        self.request_url = ""
        self.signing_secret = ""
        self.sent: Counter[str] = Counter()
        self.acked: list[str] = []
        self._faults = faults
        self._open: list[web.WebSocketResponse] = []
        self._someone = asyncio.Event()
        self._waiting: dict[str, Sending] = {}
        self._numbers = itertools.count(1)

    @property
    def connections(self) -> int:
        return len(self._open)

    async def connect(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=True)
        await socket.prepare(request)
        await socket.send_json(
            {
                "type": "hello",
                "num_connections": len(self._open) + 1,
                "connection_info": {"app_id": APP},
            }
        )
        self._open.append(socket)
        self._someone.set()
        try:
            async for message in socket:
                if message.type == aiohttp.WSMsgType.TEXT:
                    self._hear(json.loads(message.data))
        finally:
            self._forget(socket)
        return socket

    def _forget(self, socket: web.WebSocketResponse) -> None:
        if socket in self._open:
            self._open.remove(socket)
        if not self._open:
            self._someone.clear()

    def _hear(self, answer: dict[str, Any]) -> None:
        sending = self._waiting.get(str(answer.get("envelope_id")))
        if sending is None or self._faults.loses_ack():
            return
        self.acked.append(sending.payload["event_id"])
        sending.acked.set()

    async def deliver(self, payload: dict[str, Any]) -> None:
        """Until it is acknowledged, or has been sent too often."""
        sending = Sending(payload)
        while sending.tries <= self.redeliveries and not sending.acked.is_set():
            await (self._request(sending) if self.request_url else self._send(sending))

    async def _send(self, sending: Sending) -> None:
        await self._someone.wait()
        number = next(self._numbers)
        socket = self._open[number % len(self._open)]
        envelope_id = f"envelope-{number}"
        envelope = {
            "envelope_id": envelope_id,
            "type": "events_api",
            "accepts_response_payload": False,
            "retry_attempt": sending.tries,
            "retry_reason": "timeout" if sending.tries else "",
            "payload": sending.payload,
        }
        sending.tries += 1
        self.sent[sending.payload["event_id"]] += 1
        self._waiting[envelope_id] = sending
        try:
            await socket.send_json(envelope)
        except (ConnectionError, RuntimeError):
            self._forget(socket)
            return
        await _within(sending.acked.wait(), self.ack_within)

    async def _request(self, sending: Sending) -> None:
        """The same by HTTP, signed."""
        body = json.dumps(sending.payload)
        headers = sign(self.signing_secret, body)
        if sending.tries:
            headers["x-slack-retry-num"] = str(sending.tries)
        sending.tries += 1
        self.sent[sending.payload["event_id"]] += 1
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(self.ack_within)) as session,
                session.post(self.request_url, data=body, headers=headers) as answer,
            ):
                if answer.status == 200 and not self._faults.loses_ack():
                    self.acked.append(sending.payload["event_id"])
                    sending.acked.set()
                    return
        except (aiohttp.ClientError, TimeoutError):
            pass
        await asyncio.sleep(min(self.ack_within, 0.1))

    async def ask_to_disconnect(self) -> None:
        """As Slack does every few hours: the app is to open another connection."""
        for socket in list(self._open):
            await socket.send_json(
                {"type": "disconnect", "reason": "refresh_requested", "debug_info": {}}
            )

    def drop(self) -> None:
        """All connections break without a word."""
        for socket in list(self._open):
            self._forget(socket)
            transport = socket._req.transport if socket._req is not None else None
            if transport is not None:
                transport.abort()


def sign(secret: str, body: str | bytes, at: float | None = None) -> dict[str, str]:
    """The headers of a request that Slack signed."""
    stamp = str(int(time.time() if at is None else at))
    signed = f"v0:{stamp}:".encode() + (body.encode() if isinstance(body, str) else body)
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return {
        "content-type": "application/json",
        "x-slack-request-timestamp": stamp,
        "x-slack-signature": f"v0={digest}",
    }


async def _within(waiting: Any, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        pass
