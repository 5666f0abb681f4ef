"""`holdfast move`: move a whole database to another engine or server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import AsJson, parse_duration
from holdfast.cli.printing import echo, print_json, print_table
from holdfast.errors import WrongUsage

if TYPE_CHECKING:
    from holdfast.store.transfer.move import MoveReport, OnProgress

SHORT_HASH = 16


def move(
    source: Annotated[
        str, typer.Option("--from", help="Database to move: sqlite:///path or postgresql://…")
    ],
    target: Annotated[str, typer.Option("--to", help="New or empty database to move it to.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check both, count the rows, and change nothing.")
    ] = False,
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Give up a move that was killed: empty the target, unlock."),
    ] = False,
    wait: Annotated[
        str, typer.Option(help="Longest wait for running turns, such as 90s or 10m.")
    ] = "1m",
    as_json: AsJson = False,
) -> None:
    """Move a database to another engine or server; the app needs only the new URL.

    The source refuses changes during the move and afterwards. A move that was killed goes on when
    it is run again."""
    from holdfast.store.transfer.move import move as run
    from holdfast.store.transfer.move import undo_move

    if undo and dry_run:
        raise WrongUsage("--undo cannot be combined with --dry-run")
    if undo:
        undo_move(source, target)
        echo("the move was given up: the target is as it was before, the source takes work again")
        return
    longest = parse_duration(wait)
    with progress_bar() as on_progress:
        report = run(source, target, dry_run=dry_run, wait=longest, on_progress=on_progress)
    print_json(_as_data(report)) if as_json else _print(report)


@contextmanager
def progress_bar() -> Iterator[OnProgress]:
    """Show progress on stderr if that is a terminal; stdout gets the result alone."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(file=sys.stderr)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("checking", total=None)

        def show(step: str, done: int, total: int) -> None:
            bar.update(task, description=step, completed=done, total=total or None)

        yield show


def _as_data(report: MoveReport) -> dict[str, object]:
    return asdict(report) | {"rows": report.rows}


def _print(report: MoveReport) -> None:
    rows = [(one.name, one.rows, (one.hash or "")[:SHORT_HASH]) for one in report.tables]
    print_table(("table", "rows", "hash in both"), rows, empty="")
    if report.dry_run:
        echo(f"would move {report.rows} rows from {report.source} to {report.target}")
        return
    if report.replaced:
        echo(f"{report.replaced} values were replaced by the nearest ones that PostgreSQL can hold")
    again = ", continuing an earlier move" if report.resumed else ""
    echo(f"moved {report.rows} rows in {report.seconds:.0f} s{again}; counts and hashes are equal")
    echo(f"set HOLDFAST_DATABASE to {report.target}; {report.source} refuses changes from now on")
