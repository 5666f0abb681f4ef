"""`holdfast demo slack` and `holdfast demo crash`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import App, Config, Database, prepare_database
from holdfast.cli.printing import echo
from holdfast.cli.up import load
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.api.state import Harness
    from holdfast.app import AgentHarness
    from holdfast.settings import Settings

demo = typer.Typer(help="Try Holdfast without an account.", rich_markup_mode=None)

CRASH_APP = "holdfast.testing.crash.agent:app"
PortOfPage = Annotated[
    int, typer.Option("--port", help="Port of the chat page; 0 takes a free one.")
]

OpenBrowser = Annotated[
    bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
]


@demo.callback()
def _demo() -> None:
    """Try Holdfast without an account."""


@demo.command("slack")
def demo_slack(
    port: PortOfPage = 3778, database: Database = None, config: Config = None, app: App = None
) -> None:
    """Chat with your agents through a simulated Slack on this machine; no account needed."""
    from holdfast.settings.extras import require

    require("slack", "`holdfast demo slack`")
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        given = {
            "database": database or f"sqlite:///{folder}/demo.db",
            "home": Path(folder),
            "app": app,
        }
        asyncio.run(_run_slack(*load(config, given), port))


async def _run_slack(harness: AgentHarness, settings: Settings, port: int) -> None:
    from holdfast.channels.slack import SlackChannel
    from holdfast.channels.slack.access import Access
    from holdfast.testing.slack import FakeSlack
    from holdfast.testing.slack.page import with_page

    local = with_page(FakeSlack(port))
    try:
        await local.__aenter__()
    except OSError as error:
        raise HoldfastError(
            f"cannot listen at port {port}: {error.strerror}; choose another with --port"
        ) from error
    try:
        access = Access(bot_token=local.bot_token, app_token=local.app_token, api_url=local.api_url)
        harness.add_channel(SlackChannel([access], files=settings.files))
        address = f"http://127.0.0.1:{local.port}/"
        await harness.run(on_ready=lambda: echo(f"holdfast is ready: mention the bot at {address}"))
    finally:
        await local.__aexit__(None, None, None)


@demo.command("crash")
def demo_crash(port: PortOfPage = 3779, browser: OpenBrowser = True) -> None:
    """Kill a worker in the middle of an answer, and see another one go on."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        database = f"sqlite:///{folder}/demo.db"
        given = {"database": database, "home": Path(folder), "app": CRASH_APP, "api_auth": "none"}
        options = ["--database", database, "--home", folder, "--app", CRASH_APP]
        harness, settings = load(None, given)
        prepare_database(settings)
        asyncio.run(_run_crash(harness, options, port, browser=browser))


async def _run_crash(
    harness: AgentHarness, options: list[str], port: int, *, browser: bool
) -> None:
    from holdfast.api.server import serve_http
    from holdfast.testing.crash.page import routes_for
    from holdfast.testing.crash.workers import Workers

    workers, addresses = Workers(options), list[str]()

    @asynccontextmanager
    async def serve(running: Harness) -> AsyncIterator[None]:
        async with serve_http(running, "127.0.0.1", port, further=[routes_for(workers)]) as bound:
            addresses.append(f"http://127.0.0.1:{bound}/demo")
            async with workers.running():
                yield

    def show() -> None:
        echo(f"holdfast is ready: kill a worker at {addresses[0]}")
        if browser and sys.stdout.isatty():
            threading.Thread(target=_open_browser, args=[addresses[0]], daemon=True).start()

    await harness.run(serve=serve, on_ready=show, works=False)


def _open_browser(address: str) -> None:
    """Open a page in the person's browser, unless that would take over the terminal."""
    import webbrowser

    with suppress(webbrowser.Error):
        found = webbrowser.get()
        # Text browsers are generic ones. Those that run in the background have a window.
        if isinstance(found, webbrowser.BackgroundBrowser) or not isinstance(
            found, webbrowser.GenericBrowser
        ):
            found.open(address)
