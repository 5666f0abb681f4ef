"""`holdfast token` and `holdfast login`: what programs and browsers need to be let in."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import Config, Database, Home, Host, Port, login_name, make_home, opened, settings_of
from holdfast.cli.printing import echo
from holdfast.errors import HoldfastError, NewDatabase

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store import Store

ADDRESS = "api_address"
"""The setting in the database that holds the address of the server started last."""
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to be recognised, not bound
"""Addresses to listen at, and those that a browser of this machine can open instead."""


class RoleName(StrEnum):
    """read looks, send also talks, admin also cancels, retries and discards."""

    READ = "read"
    SEND = "send"
    ADMIN = "admin"


Role = Annotated[RoleName, typer.Option(help="What it allows: to look, to talk too, or everything.")]

token = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@token.callback()
def print_token(context: typer.Context, role: Role = RoleName.ADMIN, config: Config = None, home: Home = None) -> None:
    """Print the bootstrap token of a role; it is made if there is none yet."""
    if context.invoked_subcommand is not None:
        return
    from holdfast.api.tokens import token_in

    settings = settings_of(config, home=home)
    make_home(settings.home)
    echo(token_in(settings.home, role.value))


@token.command()
def rotate(role: Role = RoleName.ADMIN, database: Database = None, config: Config = None, home: Home = None) -> None:
    """Replace the bootstrap token of a role at once and print the new one; its browser sessions end."""
    from holdfast.api.tokens import rotate as rotated

    settings = settings_of(config, home=home, database=database)
    make_home(settings.home)
    new = rotated(settings.home, role.value)
    echo(new)
    try:
        ended = asyncio.run(_end_sessions(settings, role))
    except NewDatabase:
        return
    except HoldfastError as error:
        raise HoldfastError(f"the token is replaced, but its browser sessions could not be ended: {error}") from error
    if ended:
        echo(f"ended {ended} browser session{'s' if ended > 1 else ''}", err=True)


async def _end_sessions(settings: Settings, role: RoleName) -> int:
    from holdfast.store.audit import AuditEntry
    from holdfast.store.credentials import open_credentials

    async with opened(settings) as store:
        ended = await open_credentials(store).end_all(role.value)
        entry = AuditEntry(actor=actor(), action="rotated", subject=f"api:{role.value}", details={"sessions": ended})
        await store.audit(entry)
        return ended


def login(
    role: Role = RoleName.ADMIN,
    name: Annotated[str | None, typer.Option(help="Name of the session (default: your login name)")] = None,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Print a link that logs one browser in, once, within 15 minutes."""
    settings = settings_of(config, home=home, database=database, api_host=host, api_port=port)
    if settings.api_auth == "none":
        raise HoldfastError('no login is needed: `api_auth` is "none"')
    echo(asyncio.run(_login_link(settings, role, name or login_name())))


async def _login_link(settings: Settings, role: RoleName, name: str) -> str:
    from holdfast.api.caller import Grant, login_link

    async with opened(settings) as store:
        return await login_link(store, await _address(settings, store), Grant(name=name, role=role.value))


async def _address(settings: Settings, store: Store) -> str:
    """The address that was configured, else that of the server started last."""
    if settings.api_url:
        return settings.api_url
    is_given = bool({"api_host", "api_port"} & settings.model_fields_set) and settings.api_port != 0
    noted = None if is_given else await store.setting(ADDRESS)
    return noted or local_address(settings.api_host, settings.api_port)


def local_address(host: str, port: int) -> str:
    """The address of a server as a browser of this machine opens it."""
    name = EVERY_ADDRESS.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"
