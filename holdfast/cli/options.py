"""Options that commands share, and the settings and the store that they lead to."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.printing import echo
from holdfast.errors import HoldfastError, NewDatabase

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store import Store

Database = Annotated[
    str | None, typer.Option(help="sqlite:///path or postgresql://… (env HOLDFAST_DATABASE)")
]
Config = Annotated[
    Path | None, typer.Option(help="Settings file (default: holdfast.toml, if it exists)")
]
Home = Annotated[
    Path | None, typer.Option(help="Folder for files (env HOLDFAST_HOME, default: ~/.holdfast)")
]
Host = Annotated[
    str | None, typer.Option(help="Address of the API (env HOLDFAST_API_HOST, default: 127.0.0.1)")
]
Port = Annotated[
    int | None, typer.Option(help="Port of the API (env HOLDFAST_API_PORT, default: 3777)")
]
NoAuth = Annotated[bool, typer.Option("--no-auth", help="Need no token; on loopback only.")]
Workers = Annotated[
    int | None,
    typer.Option(help="Concurrent turns of each agent (env HOLDFAST_WORKERS, default: 5)"),
]
App = Annotated[
    str | None, typer.Option(help="module:name of your AgentHarness (env HOLDFAST_APP)")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]
Queue = Annotated[str | None, typer.Option(help="Only this queue: inbox, outbox, memory, …")]
Agent = Annotated[str | None, typer.Option(help="Only this agent.")]
Error = Annotated[str | None, typer.Option(help="Only errors that contain this text.")]
Before = Annotated[int | None, typer.Option(help="Only older rows: ids less than this.")]
Limit = Annotated[int, typer.Option(help="Maximum number of rows.", min=1, max=1000)]

POOL_SIZE = 2
"""Connections of a command, which runs one or two queries at a time."""


def load_settings(config: Path | None = None, **given: object) -> Settings:
    """Load the settings; options that are given win."""
    from holdfast import settings

    return settings.load(config=config, **given)


def parse_duration(text: str) -> timedelta:
    """Parse the value of an option; a wrong duration is wrong usage."""
    from holdfast.settings import duration

    try:
        return duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@asynccontextmanager
async def open_existing(settings: Settings) -> AsyncIterator[Store]:
    """Open the store if its schema is at this program's version; migrate nothing."""
    from holdfast.migrations.runner import migrate
    from holdfast.store import open_store

    report = await asyncio.to_thread(migrate, settings.database, dry_run=True)
    if report.due:
        remedy = "run `holdfast migrate` or start `holdfast up` first"
        if report.found is None:
            raise NewDatabase(f"the database is new: {remedy}")
        raise HoldfastError(f"the database is at version {report.found}: {remedy}")
    async with open_store(
        settings.database, direct_url=settings.database_direct, pool_size=POOL_SIZE
    ) as store:
        yield store


def prepare_database(settings: Settings) -> None:
    """Create the home folder and migrate the database to this program's version."""
    from holdfast.migrations.runner import migrate

    make_home(settings.home)
    migrate(settings.database, on_step=progress)


def login_name() -> str:
    """Return the user's name on this machine, `cli` if there is none."""
    import getpass

    # A container may have neither a name for its user nor a variable that holds one.
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return "cli"


def make_home(home: Path) -> None:
    """Create the home folder, readable by its owner alone."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HoldfastError(
            f"cannot create the home folder {home}: {error.strerror}; choose another with --home"
        ) from error


def progress(step: str) -> None:
    """Print a step of a migration to a person who waits; the final report lists it too."""
    if sys.stderr.isatty():
        echo(f"… {step}", err=True)
