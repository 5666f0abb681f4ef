"""The commands. Everything heavy is imported by the command that needs it, so that --help is quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import __version__
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.migrations.runner import Report
    from holdfast.settings import Settings

app = typer.Typer(
    name="holdfast",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Database = Annotated[str | None, typer.Option(help="sqlite:///path or postgresql://… (env HOLDFAST_DATABASE)")]
Config = Annotated[Path | None, typer.Option(help="Settings file (default: holdfast.toml, where there is one)")]
Home = Annotated[Path | None, typer.Option(help="Folder for files (env HOLDFAST_HOME, default: ~/.holdfast)")]
AsJson = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0, 1 when it was refused or failed, 2 for wrong usage; an error is one line."""
    try:
        code = app(args=arguments, prog_name="holdfast", standalone_mode=False)
    except HoldfastError as error:
        sys.exit(_complain(str(error), 1))
    except typer.TyperException as error:
        sys.exit(_complain(f"{error.format_message() or 'a command is missing'} (see --help)", error.exit_code))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(_complain("interrupted", 1))
    sys.exit(code or 0)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """A durable runtime for chat agents."""


@app.command()
def migrate(
    database: Database = None,
    config: Config = None,
    home: Home = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the database to this version of Holdfast."""
    from holdfast.migrations import runner

    settings = _settings(database, config, home)
    report = runner.migrate(settings.database, dry_run=dry_run, on_step=_progress)
    typer.echo(_as_json(report) if as_json else _as_text(report))


@app.command()
def up(database: Database = None, config: Config = None, home: Home = None) -> None:
    """Run everything in one process."""
    from holdfast.migrations import runner

    settings = _settings(database, config, home)
    report = runner.migrate(settings.database, on_step=_progress)
    _wait_for_stop(f"holdfast {report.version} is ready")


def _settings(database: str | None, config: Path | None, home: Path | None) -> Settings:
    from holdfast import settings

    return settings.load(config=config, database=database, home=home)


def _wait_for_stop(message: str) -> None:
    import signal
    import threading

    stop = threading.Event()
    # Before the message: whoever reads it may send the signal at once.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    typer.echo(message)
    stop.wait()


def _as_text(report: Report) -> str:
    if not report.due:
        return f"the database is at version {report.version}, nothing to do"
    verb = "would apply" if report.dry_run else "applied"
    lines = [f"{verb} {label}" for label in (*report.incremental, *report.idempotent)]
    lines += [f"warning: {warning}" for warning in report.warnings]
    state = "would be" if report.dry_run else "is"
    before = f"was {report.found}" if report.found else "was new"
    return "\n".join([*lines, f"the database {state} at version {report.version} ({before})"])


def _as_json(report: Report) -> str:
    import json
    from dataclasses import asdict

    return json.dumps(asdict(report), indent=2)


def _progress(step: str) -> None:
    # Only for someone who waits: the report says the same once it is true.
    if sys.stderr.isatty():
        typer.echo(f"… {step}", err=True)


def _complain(message: str, code: int) -> int:
    typer.echo(f"holdfast: {' '.join(message.split())}", err=True)
    return code
