"""`holdfast token`: what a client shows to be let in."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from holdfast.cli.options import Config, Home, make_home, settings_of


class RoleName(StrEnum):
    """read looks, send also talks, admin also cancels, retries and discards."""

    READ = "read"
    SEND = "send"
    ADMIN = "admin"


def token(
    role: Annotated[
        RoleName, typer.Option(help="What it allows: to look, to talk too, or everything.")
    ] = RoleName.ADMIN,
    config: Config = None,
    home: Home = None,
) -> None:
    """Print the token of a role; it is made if there is none yet."""
    from holdfast.api.tokens import token_in

    settings = settings_of(config, home=home)
    make_home(settings.home)
    typer.echo(token_in(settings.home, role.value))
