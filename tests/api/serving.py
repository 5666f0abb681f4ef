"""A harness with its server, and questions to it over real sockets."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from holdfast.api.server import serve_http
from holdfast.harness import AgentHarness

LOOPBACK = "127.0.0.1"

Serve = Callable[[AgentHarness, str, int], AbstractAsyncContextManager[int]]


@asynccontextmanager
async def serving(app: AgentHarness, serve: Serve = serve_http) -> AsyncIterator[int]:
    """Runs the harness with its server on a free port; yields the port."""
    port = 0

    @asynccontextmanager
    async def remember(harness: AgentHarness) -> AsyncIterator[None]:
        nonlocal port
        async with serve(harness, LOOPBACK, 0) as port:
            yield

    async with asyncio.TaskGroup() as group:
        await app.run(task_group=group, serve=remember)
        yield port
        app.stop()


async def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Status and body of an answer."""

    def asking() -> tuple[int, str]:
        request = urllib.request.Request(f"http://{LOOPBACK}:{port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(asking)


async def ask_json(port: int, path: str, method: str = "GET") -> tuple[int, Any]:
    status, body = await ask(port, path, method)
    return status, json.loads(body)


async def becomes(port: int, path: str, status: int) -> None:
    """Asks until the answer has this status; the test's own patience ends it."""
    async with asyncio.timeout(30):
        while (await ask(port, path))[0] != status:  # noqa: ASYNC110 - nobody tells a client
            await asyncio.sleep(0.05)
