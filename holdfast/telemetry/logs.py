"""Log lines: an event's name and its fields, as text or JSON, on stderr and never with a secret."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

from holdfast.telemetry.printable import printable, printable_json
from holdfast.telemetry.redaction import redact_end, redact_start

_PLAIN = re.compile(r"[\w.:/+*%@<>\[\]-]+")

FIELD_LENGTH = 4_000
"""Characters of one field, or of one line of another library."""
TRACEBACK_LENGTH = 64_000
USERS_CODE = "users_code"
"""Attribute of records about failures of users' code: as text, only the user's frames are shown."""
USERS_FRAMES = 4
_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


class Entry:
    """A log event with its fields. Its text is the same under every formatter."""

    def __init__(self, event: str, **fields: object) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join(
            [self.event, *(f"{name}={_quote(value)}" for name, value in self.fields.items())]
        )


def start(*, level: str = "info", as_json: bool = False) -> None:
    """Lines on stderr, unless the program around us has arranged for its own."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("holdfast").setLevel(level.upper())
    # A collector that is away is one line per export, not one per try.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)


class TextLines(logging.Formatter):
    """Time, level, logger, event and its fields in one line; a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = _text(record)
        line = f"{_moment(record)} {record.levelname.lower()} {record.name} {record.message}"
        trouble = _short_trouble(record) if hasattr(record, USERS_CODE) else _trouble(self, record)
        return printable(f"{line}\n{trouble}" if trouble else line)


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            **fields(record),
        }
        if trouble := _trouble(self, record):
            line["traceback"] = trouble
        return printable_json(json.dumps(line, ensure_ascii=False))


def fields(record: logging.LogRecord) -> dict[str, object]:
    """The event and what is said of it, without secrets."""
    entry = record.msg if isinstance(record.msg, Entry) else Entry(record.getMessage())
    fields = {"event": entry.event, **entry.fields}
    # Each by itself: JSON around it would escape what is in a secret, and it would not be found.
    return {name: _redact_value(value) for name, value in fields.items()}


def _text(record: logging.LogRecord) -> str:
    """The event and its fields as one text; each field is cut and redacted before it is quoted."""
    if isinstance(record.msg, Entry):
        return str(
            Entry(
                record.msg.event,
                **{name: _redact_value(value) for name, value in record.msg.fields.items()},
            )
        )
    return redact_start(record.getMessage(), FIELD_LENGTH)


def _redact_value(value: object) -> object:
    return (
        value if isinstance(value, int | float | None) else redact_start(str(value), FIELD_LENGTH)
    )


def _trouble(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info or not record.exc_info[0]:
        return ""
    return redact_end(formatter.formatException(record.exc_info), TRACEBACK_LENGTH)


def _short_trouble(record: logging.LogRecord) -> str:
    """The last frames outside of Holdfast, and the error."""
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    formatted = traceback.TracebackException.from_exception(record.exc_info[1])
    part: traceback.TracebackException | None = formatted
    while part is not None:
        frames = [frame for frame in part.stack if not frame.filename.startswith(_PACKAGE)]
        part.stack = traceback.StackSummary.from_list(
            frames[-USERS_FRAMES:] or list(part.stack)[-1:]
        )
        part = part.__cause__ or part.__context__
    return redact_end("".join(formatted.format()).rstrip("\n"), TRACEBACK_LENGTH)


def _moment(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _quote(value: object) -> str:
    text = printable(str(value))
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
