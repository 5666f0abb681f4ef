"""`holdfast pairing`: strangers who ask for access, and people who have it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import AsJson, Config, Database, Home, load_settings, open_existing
from holdfast.cli.printing import echo, print_json, print_table
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store.pairing import Pairing

pairing = typer.Typer(
    help="Strangers on channels: list, approve, revoke.",
    rich_markup_mode=None,
    add_completion=False,
)

REQUEST_COLUMNS = ("code", "channel", "sender", "sender id", "requested", "expires")
PEOPLE_COLUMNS = ("channel", "sender", "sender id", "approved", "by")


@pairing.command("list")
def list_pairings(
    approved: Annotated[
        bool, typer.Option(help="List the people who were approved, not the open requests.")
    ] = False,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """List strangers who wait for approval, oldest first."""
    from holdfast.store.pairing import describe_person, describe_request

    settings = load_settings(config, database=database, home=home)
    found = asyncio.run(_list(settings, approved))
    if as_json:
        print_json([describe_person(one) if approved else describe_request(one) for one in found])
    elif approved:
        print_table(PEOPLE_COLUMNS, map(_person_line, found), empty="nobody was approved yet")
    else:
        print_table(REQUEST_COLUMNS, map(_request_line, found), empty="nobody waits for approval")


@pairing.command()
def approve(
    code: Annotated[str, typer.Argument(help="The code that the person was told.")],
    database: Database = None,
    config: Config = None,
    home: Home = None,
) -> None:
    """Admit the person with this code; what they wrote before is not answered."""
    settings = load_settings(config, database=database, home=home)
    person = asyncio.run(_approve(settings, code))
    if person is None:
        raise HoldfastError(
            f"there is no open request with the code {code}; see `holdfast pairing list`"
        )
    echo(f"approved {person.sender or person.sender_id} ({person.sender_id}) on {person.channel}")


@pairing.command()
def revoke(
    channel: Annotated[str, typer.Argument(help="Name of the channel, such as telegram.")],
    sender_id: Annotated[str, typer.Argument(help="Id of the person on the channel.")],
    database: Database = None,
    config: Config = None,
    home: Home = None,
) -> None:
    """Remove a person or a request; the next message of the person gets a new code."""
    settings = load_settings(config, database=database, home=home)
    if not asyncio.run(_revoke(settings, channel, sender_id)):
        raise HoldfastError(f"{sender_id} is not paired on {channel}")
    echo(f"revoked {sender_id} on {channel}")


def _request_line(request: Pairing) -> tuple[object, ...]:
    who = (request.channel, request.sender, request.sender_id)
    return request.code, *who, request.requested_at, request.expires_at


def _person_line(person: Pairing) -> tuple[object, ...]:
    who = (person.channel, person.sender, person.sender_id)
    return *who, person.approved_at, person.approved_by


async def _list(settings: Settings, approved: bool) -> list[Pairing]:
    from holdfast.store.pairing import open_pairings

    async with open_existing(settings) as store:
        pairings = open_pairings(store)
        return await (pairings.list_approved() if approved else pairings.requests())


async def _approve(settings: Settings, code: str) -> Pairing | None:
    from holdfast.store.pairing import open_pairings, parse_code

    async with open_existing(settings) as store:
        return await open_pairings(store).approve(parse_code(code), actor=actor())


async def _revoke(settings: Settings, channel: str, sender_id: str) -> bool:
    from holdfast.store.pairing import open_pairings

    async with open_existing(settings) as store:
        return await open_pairings(store).revoke(channel, sender_id, actor=actor())
