"""`holdfast slack manifest` and `holdfast demo slack`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import App, Config, Database
from holdfast.cli.printing import echo, print_json
from holdfast.cli.up import load
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.app import AgentHarness
    from holdfast.settings import Settings

slack = typer.Typer(help="Set up an app in Slack.", rich_markup_mode=None)
demo = typer.Typer(help="Try a channel without an account.", rich_markup_mode=None)

PortOfPage = Annotated[
    int, typer.Option("--port", help="Port of the chat page; 0 takes a free one.")
]


@slack.callback()
def _slack() -> None:
    """Set up an app in Slack."""


@demo.callback()
def _demo() -> None:
    """Try a channel without an account."""


@slack.command("manifest")
def manifest(
    name: Annotated[str, typer.Option(help="Name of the bot in Slack.")] = "holdfast",
    request_url: Annotated[
        str | None,
        typer.Option(
            help="Public https://…/slack/events, to receive events by HTTP (default: Socket Mode)"
        ),
    ] = None,
) -> None:
    """Print the app manifest to paste at https://api.slack.com/apps."""
    from holdfast.channels.slack import manifest as manifests

    if request_url is not None and not request_url.startswith("https://"):
        raise HoldfastError(
            "Slack sends events to https:// addresses only; omit --request-url for Socket Mode"
        )
    print_json(manifests.manifest(name, request_url))


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
        asyncio.run(_run(*load(config, given), port))


async def _run(harness: AgentHarness, settings: Settings, port: int) -> None:
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
