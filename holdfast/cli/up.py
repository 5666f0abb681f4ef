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
    prepare_database,
)
from holdfast.cli.printing import echo
from holdfast.settings.extras import is_missing, remedy
from holdfast.telemetry import UVLOOP_MISSING
from holdfast.telemetry.logs import Entry

if TYPE_CHECKING:
    from holdfast.api.state import Harness
    from holdfast.app import AgentHarness
    from holdfast.settings import Settings

log = logging.getLogger(__name__)

OTHER_THREADS = 16
COLLECT_AFTER = 50_000
"""New objects between two garbage collections.

A busy worker holds tens of thousands, none of them garbage: with Python's default of 700 the
collector takes a tenth of the time of a drain. Cycles are rare, and can wait a little longer."""
LIBPQ_URL = "postgresql://"
"""A URL without host and database; libpq takes both from the environment."""
THREAD_JOIN_SECONDS = 1.0
Server = Callable[["Harness"], AbstractAsyncContextManager[object]]


@dataclass
class ServerStart:
    """A started server: the addresses it listens on, and how to open its page."""

    login_command: str = "holdfast login"
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
    """Run API, channels and agents in one process."""
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
            help="Port for health checks and /metrics (env HOLDFAST_METRICS_PORT, default: none)"
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
    started = ServerStart()
    if settings.metrics_port is None:
        return _run(harness, settings, nullcontext, started)
    from holdfast.api.server import serve_metrics

    server = _record_address(serve_metrics, settings.api_host, settings.metrics_port, started)
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
    """Run the API alone; other processes run the agents."""
    given: dict[str, object] = {"database": database, "home": home, "app": app}
    given |= {"api_host": host, "api_port": port, "api_auth": "none" if no_auth else None}
    _run_with_api(*load(config, given), _login_command(config, home, database), works=False)


def load(config: Path | None, given: Mapping[str, object]) -> tuple[AgentHarness, Settings]:
    """Load the app and its settings; options of the command win over settings of the app."""
    from holdfast.app import AgentHarness
    from holdfast.cli.agent_builder import add_agents
    from holdfast.cli.app_loader import load_app

    settings = load_settings(config, **given)
    harness = load_app(settings.app) if settings.app else AgentHarness()
    if harness.settings is not None:
        settings = _merge_settings(config, harness.settings, given)
    harness.settings = settings
    add_agents(harness, settings)
    return harness, settings


def _merge_settings(config: Path | None, app: Settings, given: Mapping[str, object]) -> Settings:
    """Return the settings of the file, of the app above it, and of the command above both."""
    of_app = app.model_dump(exclude_unset=True)
    options = {name: value for name, value in given.items() if value is not None}
    settings = load_settings(config, **(of_app | options))
    if "database" in of_app and "database" not in options:
        settings.name_source("the app")
    return settings


def _login_command(config: Path | None, home: Path | None, database: str | None) -> str:
    """Return the command that prints a login link for this server."""
    # Do not print a password; the user knows the URL.
    safe_url = database if database is None or "@" not in database else "…"
    given = {"--config": config, "--home": home, "--database": safe_url}
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
    started = ServerStart(command)
    server = _create_link(
        settings,
        _record_address(serve_http, settings.api_host, settings.api_port, started),
        started,
    )
    _run(harness, settings, server, started, works=works, has_page=True)


def _run(
    harness: AgentHarness,
    settings: Settings,
    server: Server,
    started: ServerStart,
    *,
    works: bool = True,
    has_page: bool = False,
) -> None:
    from holdfast.telemetry import startup as telemetry

    telemetry.start(settings)
    confine(settings)
    prepare_database(settings)
    warn_of_exposure(harness, settings)

    def on_ready() -> None:
        # Objects of the start live until the end: keep them out of garbage collections.
        gc.collect()
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER)
        lines = [_ready_line(settings, started, harness if works else None)]
        if has_page:
            lines.append(
                f"open {started.link}"
                if started.link
                else f"to open the page, run: {started.login_command}"
            )
        # In one write: a program that waits for the first line may close the pipe after it.
        echo("\n".join(lines))
        sys.stdout.flush()

    running = harness.run(serve=server, on_ready=on_ready, works=works)
    threads = (settings.workers_total if works else 0) + OTHER_THREADS
    with asyncio.Runner(loop_factory=loop_factory(settings)) as runner:
        runner.run(_in_threads(running, ThreadPoolExecutor(threads, "holdfast")))


def _record_address(
    serve: Callable[[Harness, str, int], AbstractAsyncContextManager[int]],
    host: str,
    port: int,
    started: ServerStart,
) -> Server:
    """Serve, and record the address; with port 0 it is known only then."""

    @asynccontextmanager
    async def serving(harness: Harness) -> AsyncIterator[None]:
        async with serve(harness, host, port) as bound:
            started.addresses.append(local_address(host, bound))
            yield

    return serving


def _create_link(settings: Settings, server: Server, started: ServerStart) -> Server:
    """Serve, and create a login link if a terminal can show it."""
    from holdfast.api.security.credentials import Grant, login_link

    @asynccontextmanager
    async def serving(harness: Harness) -> AsyncIterator[None]:
        async with server(harness):
            await harness.store.set_setting(ADDRESS, started.addresses[0])
            address = settings.api_url or started.addresses[0]
            if settings.api_auth == "none":
                started.link = f"{address}/"
            elif sys.stdout.isatty():
                grant = Grant(name=login_name(), role="admin")
                started.link = await login_link(harness.store, address, grant)
            yield

    return serving


def _ready_line(settings: Settings, started: ServerStart, harness: AgentHarness | None) -> str:
    """Build the ready line: agents, sandboxes, channels, addresses and database."""
    parts = [f"agents {', '.join(harness.agents)}"] if harness else []
    if harness and (names := sandboxes(harness)):
        parts.append(f"sandbox {', '.join(sorted(set(names.values())))}")
    channels = harness.channels if harness else {}
    if platforms := [name for name, channel in channels.items() if not channel.is_internal]:
        parts.append(f"channels {', '.join(platforms)}")
    # Terminals make addresses clickable; only the login link should be.
    has_link = sys.stdout.isatty() and started.link is not None
    parts += [
        address.removeprefix("http://") if has_link else address for address in started.addresses
    ]
    parts.append(f"database by {settings.database_source}: {_without_password(settings.database)}")
    return f"holdfast {__version__} is ready: {'; '.join(parts)}"


def _without_password(url: str) -> str:
    """Return a database URL without user and password."""
    from holdfast.settings.environment import libpq_address

    parts = urlsplit(url)
    if url == LIBPQ_URL:
        return f"{url}{libpq_address()}"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def loop_factory(settings: Settings) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the function that creates the event loop; None for that of asyncio."""
    if settings.event_loop == "asyncio":
        return None
    if is_missing("speed"):
        log.warning(Entry(UVLOOP_MISSING, install_with=remedy("speed")))
        return None
    import uvloop

    return uvloop.new_event_loop


async def _in_threads(running: Coroutine[Any, Any, None], executor: ThreadPoolExecutor) -> None:
    """Run to the end, then exit although threads still run.

    Plain functions of agents run in threads, and only the end of the process stops those."""
    asyncio.get_running_loop().set_default_executor(executor)
    await running
    executor.shutdown(wait=False, cancel_futures=True)
    give_up_at = time.monotonic() + THREAD_JOIN_SECONDS
    main = threading.main_thread()
    others = [one for one in threading.enumerate() if one is not main and not one.daemon]
    for thread in others:
        thread.join(max(0, give_up_at - time.monotonic()))
    if any(thread.is_alive() for thread in others):
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)
