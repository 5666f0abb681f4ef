"""`holdfast token` and `holdfast login`: access for programs and browsers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import (
    AsJson,
    Config,
    Database,
    Home,
    Host,
    Port,
    load_settings,
    login_name,
    make_home,
    open_existing,
    parse_duration,
)
from holdfast.cli.printing import echo, print_json, print_rows
from holdfast.errors import HoldfastError, NewDatabase

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store import Store
    from holdfast.store.credentials import Credential

COLUMNS = ("name", "role", "bound to", "expires", "last used")
ADDRESS = "api_address"
"""Key of the stored setting with the address of the server started last."""
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to be recognised, not bound
"""Wildcard addresses, and the loopback address that a browser can open instead."""


class RoleName(StrEnum):
    """Roles; each may do all that the one before may."""

    READ = "read"
    SEND = "send"
    ADMIN = "admin"


Role = Annotated[
    RoleName, typer.Option(help="read: look; send: also send messages; admin: everything.")
]

token = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@token.callback()
def print_token(
    context: typer.Context, role: Role = RoleName.ADMIN, config: Config = None, home: Home = None
) -> None:
    """Print the bootstrap token of a role; create it if there is none yet."""
    if context.invoked_subcommand is not None:
        return
    from holdfast.api.security.bootstrap_tokens import bootstrap_token

    settings = load_settings(config, home=home)
    make_home(settings.home)
    echo(bootstrap_token(settings.home, role.value))


@token.command()
def rotate(
    role: Role = RoleName.ADMIN, database: Database = None, config: Config = None, home: Home = None
) -> None:
    """Replace the bootstrap token of a role, print the new one, end its browser sessions."""
    from holdfast.api.security.bootstrap_tokens import rotate as rotated

    settings = load_settings(config, home=home, database=database)
    make_home(settings.home)
    new = rotated(settings.home, role.value)
    echo(new)
    try:
        ended = asyncio.run(_end_sessions(settings, role))
    except NewDatabase:
        return
    except HoldfastError as error:
        raise HoldfastError(
            f"the token is replaced, but its browser sessions did not end: {error}"
        ) from error
    if ended:
        echo(f"ended {ended} browser session{'s' if ended > 1 else ''}", err=True)


async def _end_sessions(settings: Settings, role: RoleName) -> int:
    from holdfast.queue.audit import AuditEntry
    from holdfast.store.credentials import open_credentials

    async with open_existing(settings) as store:
        ended = await open_credentials(store).end_all(role.value)
        entry = AuditEntry(
            actor=actor(),
            action="rotated",
            subject=f"api:{role.value}",
            details={"sessions": ended},
        )
        await store.audit(entry)
        return ended


@token.command()
def create(
    name: Annotated[str, typer.Option(help="Name of the person or program, unique among tokens.")],
    role: Annotated[
        RoleName, typer.Option(help="read: look; send: also send messages; admin: everything.")
    ],
    channel: Annotated[
        list[str] | None, typer.Option(help="Limit it to this channel; may be repeated.")
    ] = None,
    agent: Annotated[
        list[str] | None, typer.Option(help="Limit it to this agent; may be repeated.")
    ] = None,
    sender: Annotated[
        str | None, typer.Option(help="The only sender name that it may use.")
    ] = None,
    expires: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_duration,
            metavar="DURATION",
            help="Lifetime, such as 30d (default: unlimited)",
        ),
    ] = None,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Create a token for a person or a program, and print it this one time."""
    settings = load_settings(config, home=home, database=database)
    rights = {"channels": _names(channel), "agents": _names(agent), "sender": sender}
    secret, credential = asyncio.run(_create(settings, name, role, rights, expires))
    if as_json:
        print_json({"token": secret, **_describe(credential)})
    else:
        echo(secret)


def _names(given: list[str] | None) -> tuple[str, ...] | None:
    return tuple(given) if given else None


async def _create(
    settings: Settings, name: str, role: RoleName, rights: dict[str, Any], life: timedelta | None
) -> tuple[str, Credential]:
    from holdfast.api.security.credentials import Grant, create_token

    async with open_existing(settings) as store:
        return await create_token(store, Grant(name=name, role=role.value, **rights), life, actor())


@token.command("list")
def list_tokens(
    database: Database = None, config: Config = None, home: Home = None, as_json: AsJson = False
) -> None:
    """List the tokens of people and programs, without their secrets."""
    tokens = asyncio.run(_tokens(load_settings(config, home=home, database=database)))
    print_rows(
        [_describe(token) for token in tokens],
        as_json,
        COLUMNS,
        _line,
        empty="there are only the bootstrap tokens",
    )


async def _tokens(settings: Settings) -> list[Credential]:
    from holdfast.store.credentials import open_credentials

    async with open_existing(settings) as store:
        return await open_credentials(store).tokens()


def _describe(token: Credential) -> dict[str, Any]:
    """Return what may be shown of a token."""
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "channels": token.channels,
        "agents": token.agents,
        "sender": token.sender,
        "createdAt": token.created_at,
        "expiresAt": token.expires_at,
        "lastUsedAt": token.used_at,
    }


def _line(token: dict[str, Any]) -> Sequence[object]:
    bound = {
        name: token[name] for name in ("channels", "agents", "sender") if token[name] is not None
    }
    limits = "; ".join(
        f"{name}: {value if name == 'sender' else ', '.join(value)}"
        for name, value in bound.items()
    )
    return token["name"], token["role"], limits, token["expiresAt"], token["lastUsedAt"]


@token.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The token's name.")],
    database: Database = None,
    config: Config = None,
    home: Home = None,
) -> None:
    """Delete a token and its browser sessions; servers refuse them within a second."""
    if not asyncio.run(_revoke(load_settings(config, home=home, database=database), name)):
        raise HoldfastError(_unknown_token(name))
    echo(f"revoked the token {name!r}")


async def _revoke(settings: Settings, name: str) -> bool:
    from holdfast.api.security.credentials import revoke_token

    async with open_existing(settings) as store:
        return await revoke_token(store, name, actor())


def login(
    role: Role = RoleName.ADMIN,
    name: Annotated[
        str | None, typer.Option(help="Name of the session (default: your login name)")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Token whose rights the session gets, by name.")
    ] = None,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Print a login link for one browser; it works once, for 15 minutes."""
    settings = load_settings(config, home=home, database=database, api_host=host, api_port=port)
    if settings.api_auth == "none":
        raise HoldfastError('the API needs no login: `api_auth` is "none"')
    echo(asyncio.run(_login_link(settings, role, name, token)))


async def _login_link(
    settings: Settings, role: RoleName, name: str | None, token: str | None
) -> str:
    from holdfast.api.security.credentials import Grant, login_link

    async with open_existing(settings) as store:
        grant = Grant(name=name or login_name(), role=role.value)
        if token is not None:
            grant = Grant.of(await _find_token(store, token))
        return await login_link(store, await _address(settings, store), grant)


async def _find_token(store: Store, name: str) -> Credential:
    from holdfast.store.credentials import open_credentials

    found = {token.name: token for token in await open_credentials(store).tokens()}
    if name not in found:
        raise HoldfastError(_unknown_token(name))
    return found[name]


def _unknown_token(name: str) -> str:
    return f"there is no token named {name!r}; `holdfast token list` shows all"


async def _address(settings: Settings, store: Store) -> str:
    """Return the configured address, else that of the server started last."""
    if settings.api_url:
        return settings.api_url
    is_given = bool({"api_host", "api_port"} & settings.model_fields_set) and settings.api_port != 0
    recorded = None if is_given else await store.setting(ADDRESS)
    return recorded or local_address(settings.api_host, settings.api_port)


def local_address(host: str, port: int) -> str:
    """Return the URL of a server for a browser on this machine."""
    name = EVERY_ADDRESS.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"
