"""A harness with its server, and requests to it over real sockets."""

from __future__ import annotations

import asyncio
import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast.api.limits import Limits
from holdfast.api.security.bootstrap_tokens import Role, bootstrap_tokens
from holdfast.api.server import serve_http
from holdfast.app import AgentHarness

LOOPBACK = "127.0.0.1"
TIMEOUT_SECONDS = 60.0

_tokens: dict[int, dict[Role, str]] = {}
"""Tokens of running servers, by port."""

Serve = Callable[[AgentHarness, str, int, Limits], AbstractAsyncContextManager[int]]
DEFAULT_LIMITS = Limits()


@asynccontextmanager
async def serving(
    app: AgentHarness,
    serve: Serve = serve_http,
    limits: Limits = DEFAULT_LIMITS,
    *,
    works: bool = True,
) -> AsyncIterator[int]:
    """Run the harness with its server on a free port and in its own home. Yields the port.

    Without `works`, other processes run the agents."""
    with tempfile.TemporaryDirectory(prefix="holdfast-home-") as home:
        assert app.settings is not None
        app.settings = app.settings.model_copy(update={"home": Path(home)})
        async with _serving(app, serve, limits, works) as port:
            _tokens[port] = bootstrap_tokens(Path(home))
            yield port
            del _tokens[port]


@asynccontextmanager
async def _serving(
    app: AgentHarness, serve: Serve, limits: Limits, works: bool
) -> AsyncIterator[int]:
    port = 0

    @asynccontextmanager
    async def note_port(harness: AgentHarness) -> AsyncIterator[None]:
        nonlocal port
        async with serve(harness, LOOPBACK, 0, limits) as port:
            yield

    async with asyncio.TaskGroup() as group:
        await app.run(task_group=group, serve=note_port, works=works)
        yield port
        app.stop()


def secret_of(port: int, role: Role) -> str:
    return _tokens[port][role]


def token_of(port: int, role: Role) -> dict[str, str]:
    """Return the header with the token of a role."""
    return {"authorization": f"Bearer {secret_of(port, role)}"}


async def ask(
    port: int, path: str, method: str = "GET", body: Any = None, role: Role = "admin"
) -> tuple[int, str]:
    """Send a request with the token of a role. Returns status and body."""

    def send() -> tuple[int, str]:
        data = None if body is None else json.dumps(body).encode()
        headers = token_of(port, role)
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{port}{path}", data, headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(send)


async def ask_json(port: int, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
    status, text = await ask(port, path, method, body)
    return status, json.loads(text)


async def becomes(port: int, path: str, status: int) -> None:
    """Ask until the answer has this status."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (await ask(port, path))[0] != status:  # noqa: ASYNC110 - no signal for clients
            await asyncio.sleep(0.05)
