"""Print data on stdout: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
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
"""Columns of a terminal that has space for every field."""
TEXT_WIDTH = 60
STARTED_OVER = "(the answer starts over)"
STYLES = {
    "dead": "red",
    "expired": "red",
    "cancelled": "yellow",
    "fail": "red",
    "warn": "yellow",
    "ok": "green",
}
"""Colours of outcomes and states. Rich omits them without a terminal and if NO_COLOR is set."""


def echo(text: object = "", *, err: bool = False) -> None:
    """Print one text without control characters.

    All output of the commands goes through this module, because messages and errors come from
    other people."""
    typer.echo(printable(str(text)), err=err)


class GrowingText:
    """Prints a text at a terminal as it grows. A text that starts over begins on a new line."""

    def __init__(self) -> None:
        self.shown = ""

    def apply(self, frame: Mapping[str, Any], prefix: str = "") -> None:
        """Print what a frame changes; `prefix` goes before the beginning of the text."""
        match frame["type"]:
            case "response_delta":
                self._write(frame["text"], prefix)
            case "response_reset":
                self._void()

    def finish(self, text: str, prefix: str = "") -> None:
        """Print the rest of the final text, or the whole if it differs from what was printed."""
        if not text.startswith(self.shown):
            self._void()
        if self.shown:
            self._write(text[len(self.shown) :], prefix)
            self.end()
        else:
            echo(f"{prefix}{text}")

    def end(self) -> None:
        """End the line, if anything was printed."""
        if self.shown:
            typer.echo()
        self.shown = ""

    def _write(self, text: str, prefix: str) -> None:
        if text:
            typer.echo(printable(f"{'' if self.shown else prefix}{text}"), nl=False)
            sys.stdout.flush()
            self.shown += text

    def _void(self) -> None:
        self.end()
        typer.echo(STARTED_OVER)


def show_prompt() -> None:
    """Begin a line of input at a terminal; a pipe gets no prompt."""
    if sys.stdin.isatty():
        typer.echo("> ", nl=False)
        sys.stdout.flush()


def leave_prompt() -> None:
    """Return to the beginning of the prompt's line, so that the next text replaces it."""
    if sys.stdin.isatty():
        typer.echo("\r", nl=False)


def print_json(data: object, *, indent: int | None = 2) -> None:
    """Print data as JSON; `indent=None` prints one line."""
    typer.echo(printable_json(json.dumps(data, indent=indent, ensure_ascii=False, default=_plain)))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print a table, or the sentence `empty` if there are no rows."""
    all_rows = list(rows)
    if all_rows:
        console().print(table(columns, all_rows))
    else:
        echo(empty)


def print_rows(
    items: Sequence[T],
    as_json: bool,
    columns: Sequence[str],
    row: Callable[[T], Sequence[object]],
    *,
    empty: str,
) -> None:
    """Print items as JSON, or as a table with one row each."""
    if as_json:
        print_json(items)
    else:
        print_table(columns, map(row, items), empty=empty)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Build a table; below 120 columns with less padding."""
    from rich import box
    from rich.table import Table

    wide = is_wide()
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=wide, padding=(0, 1) if wide else (0, 1, 0, 0))
    for column in columns:
        grid.add_column(column, overflow="fold", header_style="bold")
    for row in rows:
        # As Text, because rich would read brackets in people's texts as markup.
        grid.add_row(*map(_text, row))
    return grid


def _text(value: object) -> Text:
    from rich.text import Text

    side: Literal["right"] | None = "right" if _is_number(value) else None
    return Text(printable(_cell(value)), STYLES.get(str(value), ""), justify=side)


def echo_state(state: str, text: str) -> None:
    """Print a line that begins with a state, in its colour."""
    from rich.text import Text

    line = Text.assemble((f"{state:<5}", STYLES.get(state, "")), f" {printable(text)}")
    console().print(line, soft_wrap=True)


def console() -> Console:
    """Return a console as wide as the terminal; a pipe has 200 columns."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, soft_wrap=False)


def is_wide() -> bool:
    """Say whether every field fits: on a wide terminal, or in a pipe."""
    return console().width >= WIDE


def ago(moment: datetime, now: datetime | None = None) -> str:
    """Describe a moment as people do: 3 min ago, in 2 h."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    words = _round(abs(seconds))
    return f"{words} ago" if seconds >= 0 else f"in {words}"


def _round(seconds: float) -> str:
    """Describe a duration in its largest fitting unit."""
    for unit, size, most in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 48)):
        if seconds < size * most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def short(text: str) -> str:
    """Shorten a text to one line of at most 60 characters."""
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
            return _round(value.total_seconds())
        case float():
            return f"{value:.1f}"
    return str(value)


def _plain(value: object) -> Any:
    """Convert for JSON: times to ISO 8601, durations to seconds, dataclasses to objects."""
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return event_fields(value) if hasattr(value, "payload") else asdict(value)
    return str(value)


def event_fields(event: Any) -> dict[str, Any]:
    """Return the fields of an event by the names of their columns, the payload parsed."""
    from holdfast.queue.event import payload_to_show

    return {
        "event" if name == "payload" else name: payload_to_show(event)
        if name == "payload"
        else value
        for name, value in asdict(event).items()
    }
