"""Data on stdout: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import typer

from holdfast.telemetry.printable import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")

PIPE_WIDTH = 200
WIDE = 120
"""Columns from which on a terminal has room for every field."""
TEXT_WIDTH = 60
STYLES = {
    "dead": "red",
    "expired": "red",
    "cancelled": "yellow",
    "fail": "red",
    "warn": "yellow",
    "ok": "green",
}
"""Colours of outcomes and states; rich leaves them out without a terminal, and where NO_COLOR is set."""


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
    found: Sequence[T],
    as_json: bool,
    columns: Sequence[str],
    row: Callable[[T], Sequence[object]],
    *,
    empty: str,
) -> None:
    """What was found, as JSON or a row each."""
    if as_json:
        print_json(found)
    else:
        print_table(columns, map(row, found), empty=empty)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    from rich import box
    from rich.table import Table

    # At 80 columns every space counts.
    is_narrow = console().width < WIDE
    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=not is_narrow,
        padding=(0, 1) if not is_narrow else (0, 1, 0, 0),
    )
    for column in columns:
        made.add_column(column, overflow="fold", header_style="bold")
    for row in rows:
        # As Text: what people wrote is no markup.
        made.add_row(*map(_text, row))
    return made


def _text(value: object) -> Text:
    from rich.text import Text

    side: Literal["right"] | None = "right" if _is_number(value) else None
    return Text(printable(_cell(value)), STYLES.get(str(value), ""), justify=side)


def echo_state(state: str, text: str) -> None:
    """Print a line that begins with a state, in its colour where there is a terminal that wants one."""
    from rich.text import Text

    line = Text.assemble((f"{state:<5}", STYLES.get(state, "")), f" {printable(text)}")
    console().print(line, soft_wrap=True)


def console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, soft_wrap=False)


def is_wide() -> bool:
    """Whether there is room for every field: a wide terminal, or a pipe."""
    return console().width >= WIDE


def ago(moment: datetime, now: datetime | None = None) -> str:
    """A moment as people say it: 3 min ago."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    words = _rough(abs(seconds))
    return f"{words} ago" if seconds >= 0 else f"in {words}"


def _rough(seconds: float) -> str:
    for unit, size, most in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 48)):
        if seconds < size * most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


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
            return ago(value)
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
