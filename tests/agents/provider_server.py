"""A server on loopback that speaks a provider's protocol and fails on demand."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.agents.dialects import Dialect, ModelOutput, Refusal

BREAK_OFF = Refusal(0, "", "")
"""Half an answer, and then the connection is gone."""


@dataclass
class Server:
    """Answers the requests in the order of its steps, and keeps them."""

    dialect: Dialect
    steps: list[ModelOutput | Refusal]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.keys.append(request.headers.get("Authorization", ""))
        self.requests.append(await request.json())
        step = self.steps.pop(0)
        if isinstance(step, Refusal) and step is not BREAK_OFF:
            return web.json_response(
                self.dialect.refusal(step), status=step.status, headers=step.headers
            )
        assert self.requests[-1]["stream"] is True
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        events = list(self.dialect.stream("half an answer" if isinstance(step, Refusal) else step))
        for number, event in enumerate(events[: len(events) // 2] if step is BREAK_OFF else events):
            name = f"event: {event['type']}\n" if "type" in event else ""
            await response.write(
                f"{name}data: {json.dumps(event | {'sequence_number': number})}\n\n".encode()
            )
        if step is BREAK_OFF:
            assert request.transport is not None
            request.transport.abort()
        elif "type" not in events[0]:
            await response.write(b"data: [DONE]\n\n")
        return response


@asynccontextmanager
async def serving(dialect: Dialect, *steps: ModelOutput | Refusal) -> AsyncIterator[Server]:
    server = Server(dialect, list(steps))
    app = web.Application()
    app.router.add_post(dialect.path, server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}{dialect.base}"
    try:
        yield server
    finally:
        await runner.cleanup()
