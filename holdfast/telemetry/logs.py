"""Log lines on stderr: an event and its fields, as text or JSON, without secrets."""

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
"""Maximum number of characters of a field, or of a line of another library."""
TRACEBACK_LENGTH = 64_000
USERS_CODE = "users_code"
"""Attribute of records about failures of users' code; their text shows only the user's frames."""
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
    """Log to stderr, unless the host program has configured its own handlers."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("holdfast").setLevel(level.upper())
    # Log an unreachable collector once per export, not once per retry.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)


class TextLines(logging.Formatter):
    """Format a record as one line of time, level, logger, event and fields, then its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = _text(record)
        line = f"{_timestamp(record)} {record.levelname.lower()} {record.name} {record.message}"
        trace = (
            _format_users_frames(record)
            if hasattr(record, USERS_CODE)
            else _format_traceback(self, record)
        )
        return printable(f"{line}\n{trace}" if trace else line)


class JsonLines(logging.Formatter):
    """Format a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            **fields(record),
        }
        if trace := _format_traceback(self, record):
            line["traceback"] = trace
        return printable_json(json.dumps(line, ensure_ascii=False))


def fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the event and its fields, without secrets."""
    entry = record.msg if isinstance(record.msg, Entry) else Entry(record.getMessage())
    values = {"event": entry.event, **entry.fields}
    # Redact each value by itself: a secret that JSON has escaped would not be recognised.
    return {name: _redact_value(value) for name, value in values.items()}


def _text(record: logging.LogRecord) -> str:
    """Return the event and its fields as text. Fields are cut and redacted before quoting."""
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


def _format_traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info or not record.exc_info[0]:
        return ""
    return redact_end(formatter.formatException(record.exc_info), TRACEBACK_LENGTH)


def _format_users_frames(record: logging.LogRecord) -> str:
    """Return the error and the last frames outside of Holdfast, for each error of the chain."""
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    summary = traceback.TracebackException.from_exception(record.exc_info[1])
    part: traceback.TracebackException | None = summary
    while part is not None:
        frames = [frame for frame in part.stack if not frame.filename.startswith(_PACKAGE)]
        part.stack = traceback.StackSummary.from_list(
            frames[-USERS_FRAMES:] or list(part.stack)[-1:]
        )
        part = part.__cause__ or part.__context__
    return redact_end("".join(summary.format()).rstrip("\n"), TRACEBACK_LENGTH)


def _timestamp(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _quote(value: object) -> str:
    text = printable(str(value))
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
