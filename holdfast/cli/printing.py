"""Data on stdout: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from holdfast.telemetry.printable import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

T = TypeVar("T")

PIPE_WIDTH = 200
TEXT_WIDTH = 60


def echo(text: object = "", *, err: bool = False) -> None:
    """Print one text. Everything that the commands print goes through this module: texts of others may hold
    control characters."""
    typer.echo(printable(str(text)), err=err)


def print_json(data: object, *, indent: int | None = 2) -> None:
    typer.echo(printable_json(json.dumps(data, indent=indent, ensure_ascii=False, default=_plain)))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table, or the sentence for none."""
    known = list(rows)
    if known:
        console().print(table(columns, known))
    else:
        echo(empty)


def show(
    found: Sequence[T], as_json: bool, columns: Sequence[str], row: Callable[[T], Sequence[object]], *, empty: str
) -> None:
    """What was found, as JSON or a row each."""
    if as_json:
        print_json(found)
    else:
        print_table(columns, map(row, found), empty=empty)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        # As Text: what people wrote is no markup.
        made.add_row(*(Text(printable(_cell(value)), justify="right" if _is_number(value) else None) for value in row))
    return made


def console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, soft_wrap=False)


def short(text: str) -> str:
    """One line of a text that may be long."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_WIDTH else f"{line[: TEXT_WIDTH - 1]}…"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        case timedelta():
            return f"{value.total_seconds():.0f}s"
        case float():
            return f"{value:.1f}"
    return str(value)


def _plain(value: object) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
