"""A proxy in front of a homeserver, which adds faults and delivers syncs again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import ClientSession, ClientTimeout, web
from yarl import URL

from holdfast.testing.faults import Fault, Faults

SEND = "send"
"""The method under which messages of the bot are counted and refused."""
TYPING = "typing"
SYNC = "sync"
UNDER_WAY = 0.1
"""Seconds after a refusal during which requests that began before it may still arrive."""
LIMITED = {"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many Requests"}
NOT_FORWARDED = ("host", "content-length", "transfer-encoding", "content-encoding", "connection")


class FaultyProxy:
    """Forwards requests to a homeserver. Its address takes the place of the homeserver's."""

    def __init__(self, homeserver: str) -> None:
        self.faults = Faults()
        self.acknowledged: set[str] = set()
        """Events that the client will not get again: it has asked for what comes after them."""
        self.is_away = False
        """Whether connections are broken as if there were no homeserver."""
        self.url = ""
        self._homeserver = homeserver
        self._delivered: dict[str, list[dict[str, Any]]] = {}
        self._rooms: dict[str, dict[str, Any]] = {}
        self._again: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._syncs: set[asyncio.Task[Any]] = set()
        self._waits: dict[str, tuple[float, float]] = {}
        """When a method was refused, and until when it has to wait."""

    def deliver_again(self, event: str) -> None:
        """Deliver an event again with the next sync."""
        self._again.put_nowait(self._rooms[event])

    def disconnect(self) -> None:
        """Break the connections on which clients wait for a sync."""
        for task in self._syncs:
            task.cancel()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[FaultyProxy]:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            async with ClientSession(timeout=ClientTimeout(total=None)) as self._session:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield self
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.is_away:
            _drop(request)
            return web.Response(status=502)
        if request.path.endswith("/v3/sync"):
            return await self._sync(request)
        method = _method(request)
        self.faults.calls[method] += 1
        fault = self.faults.next(method)
        if fault is None or fault.how == "drop_after":
            begun_at = time.monotonic()
            status, body = await self._forward(request)
            self._note_limit(method, begun_at, status, body)
            if fault is not None:
                _drop(request)
            return web.Response(status=status, body=body, content_type="application/json")
        return _faulty(request, fault)

    def _note_limit(self, method: str, begun_at: float, status: int, body: bytes) -> None:
        """Count requests that began although the homeserver had asked to wait."""
        now = time.monotonic()
        refused_at, wait_until = self._waits.get(method, (now, 0.0))
        if refused_at + UNDER_WAY < begun_at < wait_until:
            self.faults.impatient[method] += 1
        if status == 429:
            self.faults.refused[method] += 1
            seconds = json.loads(body).get("retry_after_ms", 0) / 1000
            self._waits[method] = (refused_at if now < wait_until else now, now + seconds)

    async def _sync(self, request: web.Request) -> web.StreamResponse:
        self.faults.calls[SYNC] += 1
        fault = self.faults.next(SYNC)
        if fault is not None:
            return _faulty(request, fault)
        since = request.query.get("since", "")
        self.acknowledged.update(str(one["event_id"]) for one in self._delivered.get(since, ()))
        answer = asyncio.ensure_future(self._forward(request))
        again = asyncio.ensure_future(self._again.get())
        self._syncs.add(answer)
        try:
            await asyncio.wait([answer, again], return_when=asyncio.FIRST_COMPLETED)
            if again.done():
                return web.json_response({"next_batch": since, "rooms": {"join": again.result()}})
            if answer.cancelled():
                _drop(request)
                return web.Response(status=502)
            status, body = answer.result()
        finally:
            self._syncs.discard(answer)
            for task in (answer, again):
                task.cancel()
        self._note(json.loads(body))
        return web.Response(status=status, body=body, content_type="application/json")

    def _note(self, synced: dict[str, Any]) -> None:
        for room, joined in synced.get("rooms", {}).get("join", {}).items():
            events = joined["timeline"]["events"]
            self._delivered.setdefault(synced["next_batch"], []).extend(events)
            self._rooms.update({str(event["event_id"]): {room: joined} for event in events})

    async def _forward(self, request: web.Request) -> tuple[int, bytes]:
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in NOT_FORWARDED
        }
        url = f"{self._homeserver}{request.rel_url.raw_path_qs}"
        async with self._session.request(
            request.method, URL(url, encoded=True), data=await request.read(), headers=headers
        ) as answer:
            return answer.status, await answer.read()


def _method(request: web.Request) -> str:
    if "/send/m.room.message/" in request.path:
        return SEND
    return TYPING if "/typing/" in request.path else request.path


def _faulty(request: web.Request, fault: Fault) -> web.StreamResponse:
    if fault.how == "ratelimited":
        wait = {"retry_after_ms": round(fault.seconds * 1000)}
        return web.json_response(LIMITED | wait, status=429)
    if fault.how == "error":
        return web.json_response({"errcode": fault.code, "error": "refused"}, status=403)
    if fault.how == "drop_before":
        _drop(request)
    return web.Response(status=fault.status)


def _drop(request: web.Request) -> None:
    with suppress(AttributeError):
        request.transport.abort()  # type: ignore[union-attr]
