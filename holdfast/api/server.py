"""Runs uvicorn inside a harness: started before it is ready, stopped after its last turn."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

from fastapi import APIRouter, FastAPI
from uvicorn import Config, Server

from holdfast.activity import reporter as activity
from holdfast.api.app import DEFAULT_LIMITS, create_app, create_metrics_app
from holdfast.api.connection import connection_of
from holdfast.api.feed import Feed
from holdfast.api.limits import Limits
from holdfast.api.security.connection_limit import ConnectionLimit
from holdfast.api.state import Harness
from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.settings.networks import networks

LAST_ANSWERS = 5
"""Seconds that running requests get when the harness stops."""
OTHER_FILES = 512
"""Open files beside connections: the database, agents' pipes, logs."""


@asynccontextmanager
async def serve_http(
    harness: Harness,
    host: str,
    port: int,
    limits: Limits = DEFAULT_LIMITS,
    further: Sequence[APIRouter] = (),
) -> AsyncIterator[int]:
    """Serve the whole API while the block runs. Yields the port; 0 chooses a free one.

    `further` routes are served beside it, without a check of tokens."""
    app = create_app(harness, host, limits)
    for routes in further:
        app.include_router(routes)
    async with _serve(app, host, port) as bound:
        if app.state.api.settings.activity:
            # There may be readers from now on: all processes write the activity log.
            await harness.store.set_setting(activity.SETTING, True)
        yield bound


def serve_metrics(
    harness: Harness, host: str, port: int, limits: Limits = DEFAULT_LIMITS
) -> AbstractAsyncContextManager[int]:
    """Serve health and metrics while the block runs. Yields the port; 0 chooses a free one."""
    return _serve(create_metrics_app(harness, host, limits), host, port)


@asynccontextmanager
async def _serve(app: FastAPI, host: str, port: int) -> AsyncIterator[int]:
    with _listening(host, port) as listener:
        server = _Server(_config(app))
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve([listener]))
            try:
                with _feeding(app, group):
                    yield listener.getsockname()[1]
            finally:
                server.should_exit = True


def _config(app: FastAPI) -> Config:
    settings: Settings = app.state.api.settings
    connection_limit = ConnectionLimit(
        most=settings.api_connections,
        most_per_client=settings.api_client_connections,
        proxies=networks(settings.api_proxies),
        reserved_paths=frozenset(app.state.reserved_paths),
    )
    _allow_files(connection_limit.most_sockets + OTHER_FILES)
    return Config(
        app,
        access_log=False,
        http=connection_of(connection_limit, app.state.api.limits),
        lifespan="off",
        log_config=None,
        log_level="warning",
        # Any client can send X-Forwarded-For; trust configured proxies alone.
        proxy_headers=bool(connection_limit.proxies),
        forwarded_allow_ips=[str(network) for network in connection_limit.proxies],
        server_header=False,
        timeout_graceful_shutdown=LAST_ANSWERS,
        ws="none",
    )


def _allow_files(needed: int) -> None:
    """Raise the limit of open files as far as the system allows.

    Otherwise accepting connections fails before our own limit is reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def _feeding(app: FastAPI, group: asyncio.TaskGroup) -> Iterator[None]:
    """Run the feed of event streams during the block, and end all streams with it."""
    feed: Feed | None = getattr(app.state, "feed", None)
    if feed is None:
        yield
        return
    feeding = group.create_task(feed.run())
    try:
        yield
    finally:
        feed.close()
        feeding.cancel()


class _Server(Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the harness."""
        yield


def _listening(host: str, port: int) -> socket.socket:
    """Bind and listen, so that clients can connect as soon as "ready" is printed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
        # Connections inherit it; asyncio sets it only on sockets that it created itself.
        # Without it a response waits 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        reason = error.strerror or str(error)
        raise HoldfastError(
            f"cannot listen at {host} port {port}: {reason}; choose another with --port"
        ) from error
