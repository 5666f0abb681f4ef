"""Socket Mode and signed requests of the fake Slack, with redelivery until acknowledged."""

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
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from holdfast.testing.faults import Faults
from holdfast.testing.slack.workspace import APP


@dataclass
class Delivery:
    """An event that is being delivered."""

    payload: dict[str, Any]
    tries: int = 0
    acked: asyncio.Event = field(default_factory=asyncio.Event)


class Sockets:
    """The open connections of apps.

    An event goes to one of them, and then to the next if it is not acknowledged."""

    def __init__(self, faults: Faults) -> None:
        self.ack_within = 3.0
        self.redeliveries = 100
        self.request_url = ""
        self.signing_secret = ""
        self.sent: Counter[str] = Counter()
        self.acked: list[str] = []
        self.interactions: list[dict[str, Any]] = []
        self._faults = faults
        self._open: list[web.WebSocketResponse] = []
        self._connected = asyncio.Event()
        self._waiting: dict[str, Delivery] = {}
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
        self._connected.set()
        try:
            async for message in socket:
                if message.type == aiohttp.WSMsgType.TEXT:
                    self._acknowledge(json.loads(message.data))
        finally:
            self._remove(socket)
        return socket

    def _remove(self, socket: web.WebSocketResponse) -> None:
        if socket in self._open:
            self._open.remove(socket)
        if not self._open:
            self._connected.clear()

    def _acknowledge(self, answer: dict[str, Any]) -> None:
        delivery = self._waiting.get(str(answer.get("envelope_id")))
        if delivery is None or self._faults.loses_ack():
            return
        self.acked.append(delivery.payload["event_id"])
        delivery.acked.set()

    async def deliver(self, payload: dict[str, Any]) -> None:
        """Send an event until it is acknowledged, or `redeliveries` are used up."""
        delivery = Delivery(payload)
        while delivery.tries <= self.redeliveries and not delivery.acked.is_set():
            await (self._request(delivery) if self.request_url else self._send(delivery))

    async def _send(self, delivery: Delivery) -> None:
        await self._connected.wait()
        number = next(self._numbers)
        socket = self._open[number % len(self._open)]
        envelope_id = f"envelope-{number}"
        envelope = {
            "envelope_id": envelope_id,
            "type": "events_api",
            "accepts_response_payload": False,
            "retry_attempt": delivery.tries,
            "retry_reason": "timeout" if delivery.tries else "",
            "payload": delivery.payload,
        }
        delivery.tries += 1
        self.sent[delivery.payload["event_id"]] += 1
        self._waiting[envelope_id] = delivery
        try:
            await socket.send_json(envelope)
        except (ConnectionError, RuntimeError):
            self._remove(socket)
            return
        await _within(delivery.acked.wait(), self.ack_within)

    async def interact(self, payload: dict[str, Any]) -> None:
        """Send what a person did with a message. As in Slack, it is not sent again."""
        self.interactions.append(payload)
        if self.request_url:
            await self._post_form(payload)
            return
        await self._connected.wait()
        number = next(self._numbers)
        await self._open[number % len(self._open)].send_json(
            {
                "envelope_id": f"envelope-{number}",
                "type": "interactive",
                "accepts_response_payload": True,
                "payload": payload,
            }
        )

    async def _request(self, delivery: Delivery) -> None:
        """Send an event by a signed HTTP request."""
        body = json.dumps(delivery.payload)
        headers = sign(self.signing_secret, body)
        if delivery.tries:
            headers["x-slack-retry-num"] = str(delivery.tries)
        delivery.tries += 1
        self.sent[delivery.payload["event_id"]] += 1
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(self.ack_within)) as session,
                session.post(self.request_url, data=body, headers=headers) as answer,
            ):
                if answer.status == 200 and not self._faults.loses_ack():
                    self.acked.append(delivery.payload["event_id"])
                    delivery.acked.set()
                    return
        except (aiohttp.ClientError, TimeoutError):
            pass
        await asyncio.sleep(min(self.ack_within, 0.1))

    async def _post_form(self, payload: dict[str, Any]) -> None:
        """Send an interaction by a signed HTTP request."""
        body = urlencode({"payload": json.dumps(payload)})
        headers = sign(self.signing_secret, body)
        headers["content-type"] = "application/x-www-form-urlencoded"
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(self.ack_within)) as session,
            session.post(self.request_url, data=body, headers=headers) as answer,
        ):
            answer.raise_for_status()

    async def ask_to_disconnect(self) -> None:
        """Ask apps to open another connection, as Slack does every few hours."""
        for socket in list(self._open):
            await socket.send_json(
                {"type": "disconnect", "reason": "refresh_requested", "debug_info": {}}
            )

    def drop(self) -> None:
        """Abort all connections without a close frame."""
        for socket in list(self._open):
            self._remove(socket)
            transport = socket._req.transport if socket._req is not None else None
            if transport is not None:
                transport.abort()


def sign(secret: str, body: str | bytes, at: float | None = None) -> dict[str, str]:
    """Return the headers of a request signed by Slack."""
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
