"""`holdfast people`: link the identities of one person."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import AsJson, Config, Database, Home, load_settings, open_existing
from holdfast.cli.printing import echo, print_rows

if TYPE_CHECKING:
    from holdfast.settings import Settings

people = typer.Typer(
    help="Identities of one person: link, unlink, list.",
    rich_markup_mode=None,
    add_completion=False,
)

Identity = Annotated[
    str,
    typer.Argument(
        help="workspace:USER:channel:id:… or …:name:…, such as default:USER:api:name:Ann."
    ),
]


@people.command()
def link(
    one: Identity,
    other: Identity,
    database: Database = None,
    config: Config = None,
    home: Home = None,
) -> None:
    """Link two identities of one person: what is remembered of one is used for both."""
    settings = load_settings(config, database=database, home=home)
    if asyncio.run(_link(settings, one, other)):
        echo(f"linked {one} and {other}")
    else:
        echo(f"{one} and {other} were linked already")


@people.command()
def unlink(
    identity: Identity, database: Database = None, config: Config = None, home: Home = None
) -> None:
    """Take an identity out of its links; exit code 1 if it had none."""
    if not asyncio.run(_unlink(load_settings(config, database=database, home=home), identity)):
        echo(f"holdfast: {identity} is not linked", err=True)
        raise typer.Exit(1)
    echo(f"unlinked {identity}")


@people.command("list")
def list_people(
    database: Database = None, config: Config = None, home: Home = None, as_json: AsJson = False
) -> None:
    """List identities that are remembered or linked; those of one person share a number."""
    rows = asyncio.run(_people(load_settings(config, database=database, home=home)))
    columns = ("person", "identity", "observations")
    print_rows(
        rows,
        as_json,
        columns,
        lambda one: tuple(one[name] for name in columns),
        empty="nobody is remembered yet",
    )


async def _link(settings: Settings, one: str, other: str) -> bool:
    from holdfast.store.memory import open_people

    async with open_existing(settings) as store:
        return await open_people(store).link(one, other, actor=actor())


async def _unlink(settings: Settings, identity: str) -> bool:
    from holdfast.store.memory import open_people

    async with open_existing(settings) as store:
        return await open_people(store).unlink(identity, actor=actor())


async def _people(settings: Settings) -> list[dict[str, Any]]:
    """Read one row per identity; those of one person have the same number."""
    from holdfast.memory.observation import USER
    from holdfast.store.memory import open_observations, open_people

    async with open_existing(settings) as store:
        subjects = await open_observations(store).find_subjects()
        groups = await open_people(store).groups()
    known = {one.key: one.observations for one in subjects if one.type == USER}
    linked = {identity for group in groups for identity in group}
    groups += [[identity] for identity in known if identity not in linked]
    return [
        {"person": number, "identity": identity, "observations": known.get(identity, 0)}
        for number, group in enumerate(groups, 1)
        for identity in group
    ]
