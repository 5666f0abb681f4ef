"""`holdfast migrate`, `init` and `backup`: set up and save the database and the settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import AsJson, Config, Database, Home, load_settings, make_home, progress
from holdfast.cli.printing import echo, print_json
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.migrations.runner import Report


def migrate(
    database: Database = None,
    config: Config = None,
    home: Home = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the scripts to apply, and change nothing.")
    ] = False,
    timescale: Annotated[
        bool,
        typer.Option(
            "--timescale", help="Make the history a TimescaleDB hypertable while workers run."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Migrate the database to this version of Holdfast."""
    from holdfast.migrations import runner
    from holdfast.settings import sqlite_path

    settings = load_settings(config, database=database, home=home)
    path = sqlite_path(settings.database)
    if path is not None and settings.home in path.parents and not dry_run:
        make_home(settings.home)
    if timescale and (path is not None or dry_run):
        raise HoldfastError("--timescale needs PostgreSQL, and cannot be combined with --dry-run")
    report = runner.migrate(settings.database, dry_run=dry_run, on_step=progress)
    print_json(report) if as_json else echo(_as_text(report))
    if timescale:
        _use_timescale(settings.database)


def _use_timescale(url: str) -> None:
    from holdfast.migrations.timescale import use_timescale

    is_new = use_timescale(url, progress)
    progress(f"the history is a hypertable {'now' if is_new else 'already, nothing to do'}")


def init(
    config: Annotated[
        Path | None, typer.Option(help="File to write (default: holdfast.toml)")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a settings file that explains every setting."""
    from holdfast.settings import CONFIG_FILE, sample_toml

    path = config or CONFIG_FILE
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(sample_toml())
    except FileExistsError:
        raise HoldfastError(
            f"{path} exists: --force overwrites it, --config chooses another"
        ) from None
    except OSError as error:
        raise HoldfastError(f"cannot write {path}: {error.strerror}") from error
    echo(f"wrote {path}")


def backup(
    file: Annotated[Path, typer.Argument(help="File to write.")],
    database: Database = None,
    config: Config = None,
    home: Home = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy a SQLite database to a file while it is in use; for PostgreSQL, use pg_dump."""
    from holdfast.settings import sqlite_path
    from holdfast.store.sqlite.connection import back_up

    settings = load_settings(config, database=database, home=home)
    path = sqlite_path(settings.database)
    if path is None:
        raise HoldfastError(
            "the database is PostgreSQL: back it up with pg_dump --format=custom --schema=agent"
        )
    size = back_up(path, file, replace=force)
    print_json({"file": str(file), "bytes": size}) if as_json else echo(
        f"wrote {file}, {size} bytes, checked"
    )


def _as_text(report: Report) -> str:
    """Describe a migration: its scripts, its warnings, and the version before and after."""
    if not report.due:
        return f"the database is at version {report.version}, nothing to do"
    verb = "would apply" if report.dry_run else "applied"
    lines = [f"{verb} {label}" for label in (*report.incremental, *report.idempotent)]
    lines += [f"warning: {warning}" for warning in report.warnings]
    state = "would be" if report.dry_run else "is"
    before = f"was {report.found}" if report.found else "was new"
    return "\n".join([*lines, f"the database {state} at version {report.version} ({before})"])
