"""`holdfast up`, `work` and `serve`: processes that run until a signal stops them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from holdfast import __version__
from holdfast.cli.options import App, Config, Database, Home, Host, Port, Workers, prepare, settings_of

if TYPE_CHECKING:
    from holdfast.api.app import Harness
    from holdfast.consumer import Consumer
    from holdfast.harness import AgentHarness
    from holdfast.settings import Settings
    from holdfast.store import Store

OTHER_THREADS = 16
IDLE_THREADS_END_WITHIN = 1.0

Server = Callable[["Harness"], AbstractAsyncContextManager[object]]


def up(
    database: Database = None,
    config: Config = None,
    home: Home = None,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    app: App = None,
) -> None:
    """Run everything in one process: API, channels and agents."""
    given = {"database": database, "home": home, "api_host": host, "api_port": port, "workers": workers, "app": app}
    harness, settings = _load(config, given)
    from holdfast.api.server import serve_http

    addresses: list[str] = []
    _run(harness, settings, _noting(serve_http, settings.api_host, settings.api_port, addresses), addresses)


def work(
    database: Database = None,
    config: Config = None,
    home: Home = None,
    workers: Workers = None,
    app: App = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve health and /metrics here (env HOLDFAST_METRICS_PORT, default: nowhere)")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address for --metrics-port (default: 127.0.0.1)")] = None,
) -> None:
    """Run channels and agents without the API."""
    given: dict[str, object] = {"database": database, "home": home, "workers": workers, "app": app}
    given |= {"metrics_port": metrics_port, "api_host": host}
    harness, settings = _load(config, given)
    addresses: list[str] = []
    if settings.metrics_port is None:
        return _run(harness, settings, lambda _: nullcontext(), addresses)
    from holdfast.api.server import serve_metrics

    server = _noting(serve_metrics, settings.api_host, settings.metrics_port, addresses)
    return _run(harness, settings, server, addresses)


def serve(
    database: Database = None,
    config: Config = None,
    home: Home = None,
    host: Host = None,
    port: Port = None,
    app: App = None,
) -> None:
    """Run the API alone; agents work in other processes."""
    given = {"database": database, "home": home, "api_host": host, "api_port": port, "app": app}
    _, settings = _load(config, given)
    from holdfast.api.server import serve_http

    addresses: list[str] = []
    server = _noting(serve_http, settings.api_host, settings.api_port, addresses)
    _start(settings)
    _run_to_the_end(_answer(settings, server, lambda: _say_ready(settings, addresses)), OTHER_THREADS)


def _load(config: Path | None, given: Mapping[str, object]) -> tuple[AgentHarness, Settings]:
    """The app and its settings: what it was made with counts, and options of the command count more."""
    from holdfast.cli.configured import add_configured
    from holdfast.cli.loading import load_app
    from holdfast.harness import AgentHarness

    settings = settings_of(config, **given)
    harness = load_app(settings.app) if settings.app else AgentHarness()
    if harness.settings is not None:
        made_with = harness.settings.model_dump(exclude_unset=True)
        options = {name: value for name, value in given.items() if value is not None}
        settings = settings_of(config, **(made_with | options))
    harness.settings = settings
    add_configured(harness, settings)
    return harness, settings


def _run(harness: AgentHarness, settings: Settings, server: Server, addresses: list[str]) -> None:
    _start(settings)
    running = harness.run(serve=server, on_ready=lambda: _say_ready(settings, addresses, tuple(harness.agents)))
    _run_to_the_end(running, settings.workers + OTHER_THREADS)


def _start(settings: Settings) -> None:
    from holdfast.telemetry import starting

    starting.start(settings)
    prepare(settings)


def _noting(
    serve: Callable[[Harness, str, int], AbstractAsyncContextManager[int]], host: str, port: int, addresses: list[str]
) -> Server:
    """Serves, and notes the address, which nobody knows before for port 0."""

    @asynccontextmanager
    async def serving(harness: Harness) -> AsyncIterator[None]:
        async with serve(harness, host, port) as bound:
            addresses.append(f"http://{f'[{host}]' if ':' in host else host}:{bound}")
            yield

    return serving


@dataclass
class _Front:
    """What the API needs where nothing is worked."""

    store: Store
    stopping: bool = False
    consumers: tuple[Consumer, ...] = ()


async def _answer(settings: Settings, server: Server, on_ready: Callable[[], None]) -> None:
    from holdfast.store import open_store

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Nothing is held here that a second signal would have to cut short.
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    pool_size = settings.connections
    async with open_store(settings.database, direct_url=settings.database_direct, pool_size=pool_size) as store:
        front = _Front(store)
        async with server(front):
            on_ready()
            await stop.wait()
            front.stopping = True


def _say_ready(settings: Settings, addresses: list[str], agents: tuple[str, ...] = ()) -> None:
    parts = [f"agents {', '.join(agents)}"] if agents else []
    parts += [*addresses, _shown(settings.database)]
    typer.echo(f"holdfast {__version__} is ready: {'; '.join(parts)}")
    sys.stdout.flush()


def _shown(url: str) -> str:
    """The database without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _run_to_the_end(running: Coroutine[Any, Any, None], threads: int) -> None:
    asyncio.run(_in_threads(running, ThreadPoolExecutor(threads, "holdfast")))


async def _in_threads(running: Coroutine[Any, Any, None], executor: ThreadPoolExecutor) -> None:
    """Plain functions among the handlers run in threads, which nothing can stop but the end of the process."""
    asyncio.get_running_loop().set_default_executor(executor)
    await running
    executor.shutdown(wait=False, cancel_futures=True)
    give_up_at = time.monotonic() + IDLE_THREADS_END_WITHIN
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon]
    for thread in others:
        thread.join(max(0, give_up_at - time.monotonic()))
    if any(thread.is_alive() for thread in others):
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)
