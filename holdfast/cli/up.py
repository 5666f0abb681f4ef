"""`holdfast up`, `work` and `serve`: processes that run until a signal stops them."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shlex
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from holdfast import __version__
from holdfast.cli.access import ADDRESS, local_address
from holdfast.cli.hardening import confine, sandboxes, warn_of_exposure
from holdfast.cli.options import (
    App,
    Config,
    Database,
    Home,
    Host,
    NoAuth,
    Port,
    Workers,
    load_settings,
    login_name,
    prepare,
)
from holdfast.cli.printing import echo

if TYPE_CHECKING:
    from holdfast.api.state import Harness
    from holdfast.app import AgentHarness
    from holdfast.settings import Settings

OTHER_THREADS = 16
LEFT_TO_LIBPQ = "postgresql://"
IDLE_THREADS_END_WITHIN = 1.0
Server = Callable[["Harness"], AbstractAsyncContextManager[object]]


@dataclass
class Started:
    """A started server: where it listens, and how to open its page."""

    command: str = "holdfast login"
    addresses: list[str] = field(default_factory=list)
    link: str | None = None


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
    _run_with_api(*load(config, given), _login_command(config, home, database))


def work(
    database: Database = None,
    config: Config = None,
    home: Home = None,
    workers: Workers = None,
    app: App = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Serve health and /metrics here (env HOLDFAST_METRICS_PORT, default: nowhere)"
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address for --metrics-port (default: 127.0.0.1)")
    ] = None,
) -> None:
    """Run channels and agents without the API."""
    given: dict[str, object] = {"database": database, "home": home, "workers": workers, "app": app}
    given |= {"metrics_port": metrics_port, "api_host": host}
    harness, settings = load(config, given)
    started = Started()
    if settings.metrics_port is None:
        return _run(harness, settings, lambda _: nullcontext(), started)
    from holdfast.api.server import serve_metrics

    server = _noting(serve_metrics, settings.api_host, settings.metrics_port, started)
    return _run(harness, settings, server, started)


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
    _run_with_api(*load(config, given), _login_command(config, home, database), works=False)


def load(config: Path | None, given: Mapping[str, object]) -> tuple[AgentHarness, Settings]:
    """The app and its settings: what it was made with counts, and options of the command count more."""
    from holdfast.app import AgentHarness
    from holdfast.cli.agent_builder import add_agents
    from holdfast.cli.app_loader import load_app

    settings = load_settings(config, **given)
    harness = load_app(settings.app) if settings.app else AgentHarness()
    if harness.settings is not None:
        made_with = harness.settings.model_dump(exclude_unset=True)
        options = {name: value for name, value in given.items() if value is not None}
        settings = load_settings(config, **(made_with | options))
        if "database" in made_with and "database" not in options:
            settings.name_source("the app")
    harness.settings = settings
    add_agents(harness, settings)
    return harness, settings


def _login_command(config: Path | None, home: Path | None, database: str | None) -> str:
    """The command that prints a login link for this server."""
    # A password is not printed: the user knows the URL.
    shown = database if database is None or "@" not in database else "…"
    given = {"--config": config, "--home": home, "--database": shown}
    words = [
        word for name, value in given.items() if value is not None for word in (name, str(value))
    ]
    return shlex.join(["holdfast", "login", *words])


def _run_with_api(
    harness: AgentHarness, settings: Settings, command: str, *, works: bool = True
) -> None:
    from holdfast.api.security.guard import refuse_open
    from holdfast.api.server import serve_http

    refuse_open(settings, settings.api_host)
    started = Started(command)
    server = _with_link(
        settings, _noting(serve_http, settings.api_host, settings.api_port, started), started
    )
    _run(harness, settings, server, started, works=works, has_page=True)


def _run(
    harness: AgentHarness,
    settings: Settings,
    server: Server,
    started: Started,
    *,
    works: bool = True,
    has_page: bool = False,
) -> None:
    from holdfast.telemetry import starting as telemetry

    telemetry.start(settings)
    confine(settings)
    prepare(settings)
    warn_of_exposure(harness, settings)

    def on_ready() -> None:
        # What was made to start stays to the end: while turns run it need not be looked through for garbage.
        gc.collect()
        gc.freeze()
        lines = [_ready(settings, started, harness if works else None)]
        if has_page:
            lines.append(
                f"open {started.link}"
                if started.link
                else f"to open the page, run: {started.command}"
            )
        # In one piece: whoever waits for the first line may not stay for the second.
        echo("\n".join(lines))
        sys.stdout.flush()

    running = harness.run(serve=server, on_ready=on_ready, works=works)
    _run_to_the_end(running, (settings.workers_total if works else 0) + OTHER_THREADS)


def _noting(
    serve: Callable[[Harness, str, int], AbstractAsyncContextManager[int]],
    host: str,
    port: int,
    started: Started,
) -> Server:
    """Serve, and note the address, which nobody knows before for port 0."""

    @asynccontextmanager
    async def serving(harness: Harness) -> AsyncIterator[None]:
        async with serve(harness, host, port) as bound:
            started.addresses.append(local_address(host, bound))
            yield

    return serving


def _with_link(settings: Settings, server: Server, started: Started) -> Server:
    """Serve, and make a login link for whoever sees the terminal."""
    from holdfast.api.security.credentials import Grant, login_link

    @asynccontextmanager
    async def serving(harness: Harness) -> AsyncIterator[None]:
        async with server(harness):
            await harness.store.set_setting(ADDRESS, started.addresses[0])
            address = settings.api_url or started.addresses[0]
            if settings.api_auth == "none":
                started.link = f"{address}/"
            elif sys.stdout.isatty():
                started.link = await login_link(
                    harness.store, address, Grant(name=login_name(), role="admin")
                )
            yield

    return serving


def _ready(settings: Settings, started: Started, harness: AgentHarness | None) -> str:
    """Say who works here, in which sandbox, and where."""
    parts = [f"agents {', '.join(harness.agents)}"] if harness else []
    if harness and (names := sandboxes(harness)):
        parts.append(f"sandbox {', '.join(sorted(set(names.values())))}")
    if harness and harness.channels:
        parts.append(f"channels {', '.join(harness.channels)}")
    # Terminals make addresses clickable, and only the login link shall be.
    is_shown = sys.stdout.isatty() and started.link is not None
    parts += [
        address.removeprefix("http://") if is_shown else address for address in started.addresses
    ]
    parts.append(f"database by {settings.database_source}: {_shown(settings.database)}")
    return f"holdfast {__version__} is ready: {'; '.join(parts)}"


def _shown(url: str) -> str:
    """The database without user and password."""
    from holdfast.settings.environment import libpq_address

    parts = urlsplit(url)
    if url == LEFT_TO_LIBPQ:
        return f"{url}{libpq_address()}"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _run_to_the_end(running: Coroutine[Any, Any, None], threads: int) -> None:
    asyncio.run(_in_threads(running, ThreadPoolExecutor(threads, "holdfast")))


async def _in_threads(running: Coroutine[Any, Any, None], executor: ThreadPoolExecutor) -> None:
    """Plain functions among the handlers run in threads, which nothing can stop but the end of the process."""
    asyncio.get_running_loop().set_default_executor(executor)
    await running
    executor.shutdown(wait=False, cancel_futures=True)
    give_up_at = time.monotonic() + IDLE_THREADS_END_WITHIN
    others = [
        thread
        for thread in threading.enumerate()
        if thread is not threading.main_thread() and not thread.daemon
    ]
    for thread in others:
        thread.join(max(0, give_up_at - time.monotonic()))
    if any(thread.is_alive() for thread in others):
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)
