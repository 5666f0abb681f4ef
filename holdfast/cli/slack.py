"""`holdfast slack manifest`."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.printing import print_json
from holdfast.errors import HoldfastError

slack = typer.Typer(help="Set up an app in Slack.", rich_markup_mode=None)


@slack.callback()
def _slack() -> None:
    """Set up an app in Slack."""


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
