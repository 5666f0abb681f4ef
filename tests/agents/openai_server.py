"""A server on loopback that speaks the protocol of OpenAI's chat completions, and fails as told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


@dataclass(frozen=True)
class Refusal:
    """An error as OpenAI writes it."""

    status: int
    code: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]


BREAK_OFF = object()
"""Half an answer, and then the connection is gone."""

Step = str | Refusal | Call | object


@dataclass
class Server:
    """Answers the requests in the order of its steps, and keeps them."""

    steps: list[Step]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self.keys.append(request.headers.get("Authorization", ""))
        self.requests.append(await request.json())
        step = self.steps.pop(0)
        if isinstance(step, Refusal):
            error = {"message": step.message, "type": "error", "param": None, "code": step.code}
            return web.json_response({"error": error}, status=step.status, headers=step.headers)
        assert self.requests[-1]["stream"] is True
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await self._say(response, step)
        return response

    async def _say(self, response: web.StreamResponse, step: Step) -> None:
        async def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
            data = {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "fake",
                "choices": [choice],
            }
            await response.write(f"data: {json.dumps(data | more)}\n\n".encode())

        if isinstance(step, Call):
            function = {"name": step.name, "arguments": json.dumps(step.arguments)}
            call = {"index": 0, "id": "call_1", "type": "function", "function": function}
            await chunk({"role": "assistant", "tool_calls": [call]})
            await chunk({}, "tool_calls")
        elif isinstance(step, str):
            for word in step.split(" "):
                await chunk({"role": "assistant", "content": f"{word} "})
            await chunk({}, "stop")
        else:
            await chunk({"role": "assistant", "content": "half"})
            assert response._req is not None
            assert response._req.transport is not None
            response._req.transport.abort()
            return
        await chunk({}, choices=[], usage=USAGE)
        await response.write(b"data: [DONE]\n\n")


@asynccontextmanager
async def serving(*steps: Step) -> AsyncIterator[Server]:
    server = Server(list(steps))
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()
