"""`holdfast import`: take over the data of a Tiger Agent or a TinyAGI."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import AsJson, Config, Database, Home, load_settings, make_home
from holdfast.cli.printing import echo, print_json, print_table
from holdfast.errors import Unknown

if TYPE_CHECKING:
    from holdfast.message import Payload
    from holdfast.queue.event import NewEvent
    from holdfast.routing.router import Routing
    from holdfast.settings import Settings
    from holdfast.store.transfer.importing import ImportReport, Route

imports = typer.Typer(
    help="Take over the data of a Tiger Agent or a TinyAGI.",
    rich_markup_mode=None,
    add_completion=False,
)

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Count what would be imported, and change nothing.")
]


@imports.command()
def tiger(
    source: Annotated[
        str, typer.Option("--from", help="postgresql://… with the schema of Tiger Agent.")
    ],
    dry_run: DryRun = False,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Import live events and history of a Tiger Agent.

    In the same database its schema is renamed to tiger_agent."""
    from holdfast.store.transfer.tiger import import_tiger

    settings = _settings(config, database, home, dry_run)
    route = _route(_routing(settings, is_foreign=True))
    _print(import_tiger(source, settings.database, route, dry_run=dry_run), as_json)


@imports.command()
def tinyagi(
    source: Annotated[Path, typer.Option("--from", help="The file tinyagi.db of TinyAGI.")],
    dry_run: DryRun = False,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Import messages, responses and histories of a TinyAGI; its file stays as it is."""
    from holdfast.store.transfer.tinyagi import import_tinyagi

    settings = _settings(config, database, home, dry_run)
    route = _route(_routing(settings))
    _print(import_tinyagi(source, settings.database, route, dry_run=dry_run), as_json)


def _settings(
    config: Path | None, database: str | None, home: Path | None, dry_run: bool
) -> Settings:
    from holdfast.settings import sqlite_path

    settings = load_settings(config, database=database, home=home)
    path = sqlite_path(settings.database)
    if path is not None and settings.home in path.parents and not dry_run:
        make_home(settings.home)
    return settings


def _routing(settings: Settings, *, is_foreign: bool = False) -> Routing:
    """Return the agents of the app or of holdfast.toml, and those that processes serve."""
    from holdfast.cli.app_loader import load_app
    from holdfast.errors import HoldfastError
    from holdfast.migrations.runner import migrate
    from holdfast.routing.directory import configured_routing, read
    from holdfast.store import open_store

    configured = load_app(settings.app).routing if settings.app else configured_routing(settings)

    async def read_routing() -> Routing:
        async with open_store(settings.database) as store:
            return (await read(store, configured)).routing

    try:
        is_there = not migrate(settings.database, dry_run=True).due
    except HoldfastError:
        # The schema of Tiger Agent, which the import replaces.
        if not is_foreign:
            raise
        is_there = False
    return asyncio.run(read_routing()) if is_there else configured


def _route(routing: Routing) -> Route:
    from holdfast.message import conversation_of, written_of
    from holdfast.routing.router import Route as Destination

    def route(payload: Payload, agent: str | None) -> NewEvent:
        if agent is None:
            destination = routing.route(written_of(payload))
        else:
            try:
                destination = routing.route_to(agent) if agent else Destination()
            except Unknown:
                # It waits until a process serves an agent of this name.
                destination = Destination(agent)
        return routing.event(
            payload, destination, conversation_of(payload), message_id=None, max_attempts=None
        )

    return route


def _print(report: ImportReport, as_json: bool) -> None:
    if as_json:
        print_json(asdict(report))
        return
    print_table(("what", "rows"), report.imported.items(), empty="there is nothing to import")
    verb = "would import" if report.dry_run else "imported"
    echo(f"{verb} {sum(report.imported.values())} rows from {report.source} to {report.target}")
    if report.known:
        echo(f"{report.known} rows were imported before")
    if report.kept:
        echo(f"the old tables are in schema {report.kept}")
    for name, rows in report.left.items():
        if rows:
            echo(f"{rows} rows of {name} have no counterpart here and stay where they are")
