"""`holdfast people`: identities that are one person."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import AsJson, Config, Database, Home, load_settings, open_existing
from holdfast.cli.printing import echo, show

if TYPE_CHECKING:
    from holdfast.settings import Settings

people = typer.Typer(
    help="People who are known under several identities: link, unlink, list.",
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
    """Say that two identities are one person: what is remembered of one is known to the other."""
    settings = load_settings(config, database=database, home=home)
    if asyncio.run(_link(settings, one, other)):
        echo(f"{one} and {other} are one person now")
    else:
        echo(f"{one} and {other} were one person already")


@people.command()
def unlink(
    identity: Identity, database: Database = None, config: Config = None, home: Home = None
) -> None:
    """Make an identity a person of its own again; exit code 1 if it was not linked."""
    if not asyncio.run(_unlink(load_settings(config, database=database, home=home), identity)):
        echo(f"{identity} is not linked to anybody", err=True)
        raise typer.Exit(1)
    echo(f"{identity} is a person of its own now")


@people.command("list")
def list_people(
    database: Database = None, config: Config = None, home: Home = None, as_json: AsJson = False
) -> None:
    """List the identities that are remembered or linked, and which of them are one person."""
    found = asyncio.run(_people(load_settings(config, database=database, home=home)))
    columns = ("person", "identity", "observations")
    show(
        found,
        as_json,
        columns,
        lambda one: tuple(one[name] for name in columns),
        empty="nobody is known yet",
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
    """One row per identity; those of one person have the same number."""
    from holdfast.memory.observation import USER
    from holdfast.store.memory import open_observations, open_people

    async with open_existing(settings) as store:
        known = {
            one.key: one.observations
            for one in await open_observations(store).find_subjects()
            if one.type == USER
        }
        groups = await open_people(store).groups()
    linked = {identity for group in groups for identity in group}
    groups += [[identity] for identity in known if identity not in linked]
    return [
        {"person": number, "identity": identity, "observations": known.get(identity, 0)}
        for number, group in enumerate(groups, 1)
        for identity in group
    ]
