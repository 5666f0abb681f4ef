"""`holdfast up`, `work` and `serve`: processes that run until a signal stops them."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from holdfast import __version__
from holdfast.cli.options import App, Config, Database, Home, Host, NoAuth, Port, Workers, prepare, settings_of

if TYPE_CHECKING:
    from holdfast.api.served import Harness
    from holdfast.harness import AgentHarness
    from holdfast.settings import Settings

OTHER_THREADS = 16
IDLE_THREADS_END_WITHIN = 1.0
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to be recognised, not bound
"""One that a browser of this machine can open."""

Server = Callable[["Harness"], AbstractAsyncContextManager[object]]


def up(
    database: Database = None,
    config: Config = None,
    home: Home = None,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    app: App = None,
    no_auth: NoAuth = False,
) -> None:
    """Run everything in one process: API, channels and agents."""
    given: dict[str, object] = {"database": database, "home": home, "workers": workers, "app": app}
    given |= {"api_host": host, "api_port": port, "api_auth": "none" if no_auth else None}
    _run_with_api(*load(config, given))


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
    harness, settings = load(config, given)
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
    no_auth: NoAuth = False,
) -> None:
    """Run the API alone; agents work in other processes."""
    given: dict[str, object] = {"database": database, "home": home, "app": app}
    given |= {"api_host": host, "api_port": port, "api_auth": "none" if no_auth else None}
    _run_with_api(*load(config, given), works=False)


def load(config: Path | None, given: Mapping[str, object]) -> tuple[AgentHarness, Settings]:
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


def _run_with_api(harness: AgentHarness, settings: Settings, *, works: bool = True) -> None:
    from holdfast.api.guard import refuse_open
    from holdfast.api.server import serve_http

    refuse_open(settings, settings.api_host)
    addresses: list[str] = []
    server = _noting(serve_http, settings.api_host, settings.api_port, addresses)
    _run(harness, settings, server, addresses, works=works, link=True)


def _run(
    harness: AgentHarness,
    settings: Settings,
    server: Server,
    addresses: list[str],
    *,
    works: bool = True,
    link: bool = False,
) -> None:
    from holdfast.telemetry import starting

    starting.start(settings)
    prepare(settings)

    def on_ready() -> None:
        # What was made to start stays to the end: while turns run it need not be looked through for garbage.
        gc.collect()
        gc.freeze()
        said = _ready(settings, addresses, tuple(harness.agents) if works else ())
        # In one piece: whoever waits for the first line may not stay for the second.
        typer.echo(f"{said}\nopen {_link(settings, addresses[0])}" if link else said)
        sys.stdout.flush()

    running = harness.run(serve=server, on_ready=on_ready, works=works)
    _run_to_the_end(running, (settings.workers_total if works else 0) + OTHER_THREADS)


def _link(settings: Settings, address: str) -> str:
    """Logs a browser in; to be clicked by whoever sees this terminal."""
    from holdfast.api.tokens import token_in

    if settings.api_auth == "none":
        return f"{address}/"
    return f"{address}/login?token={token_in(settings.home, 'admin')}"


def _noting(
    serve: Callable[[Harness, str, int], AbstractAsyncContextManager[int]], host: str, port: int, addresses: list[str]
) -> Server:
    """Serves, and notes the address, which nobody knows before for port 0."""

    @asynccontextmanager
    async def serving(harness: Harness) -> AsyncIterator[None]:
        async with serve(harness, host, port) as bound:
            name = EVERY_ADDRESS.get(host, host)
            addresses.append(f"http://{f'[{name}]' if ':' in name else name}:{bound}")
            yield

    return serving


def _ready(settings: Settings, addresses: list[str], agents: tuple[str, ...] = ()) -> str:
    parts = [f"agents {', '.join(agents)}"] if agents else []
    parts += [*addresses, _shown(settings.database)]
    return f"holdfast {__version__} is ready: {'; '.join(parts)}"


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
