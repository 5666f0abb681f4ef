"""Log lines: an event's name and its fields, as text or JSON, on stderr and never with a secret."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST_SECRET = 4
"""A shorter one would be found in every other word; where it stands in a URL it is hidden all the same."""

_USER_INFO = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^\s:/@]*):(?!password@)(?P<password>\S+)@", re.IGNORECASE)
_PARAMETER = re.compile(
    r"(?P<before>\b(?:password|passfile|sslpassword|token|secret)\b *[=:] *)(?P<quote>['\"]?)[^\s&'\"]+"
)
_QUERY = re.compile(r"[?&](?:ssl)?password=([^&\s]+)")
_PLAIN = re.compile(r"[\w.:/+*%@<>\[\]-]+")

_secrets: set[str] = set()


class Entry:
    """What happened, by its name, and to whom; as a text it reads the same under any formatter."""

    def __init__(self, event: str, **fields: object) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={_quoted(value)}" for name, value in self.fields.items())])


def hide(text: str) -> None:
    """From now on this secret, or the password of this URL, is written nowhere."""
    found = [match["password"] for match in _USER_INFO.finditer(text)] + _QUERY.findall(text)
    secrets = found if "://" in text else [text]
    _secrets.update(form for secret in secrets for form in (secret, unquote(secret)) if len(form) >= SHORTEST_SECRET)


def redact(text: str) -> str:
    """The text without secrets: those that were named, and what looks like one."""
    for secret in _secrets:
        text = text.replace(secret, HIDDEN)
    text = _USER_INFO.sub(rf"\g<before>:{HIDDEN}@", text)
    return _PARAMETER.sub(rf"\g<before>\g<quote>{HIDDEN}", text)


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
        record.message = record.getMessage()
        line = f"{_moment(record)} {record.levelname.lower()} {record.name} {record.message}"
        trouble = _trouble(self, record)
        return redact(f"{line}\n{trouble}" if trouble else line)


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _moment(record), "level": record.levelname.lower(), "logger": record.name, **fields(record)}
        if trouble := _trouble(self, record):
            line["traceback"] = redact(trouble)
        return json.dumps(line, ensure_ascii=False)


def fields(record: logging.LogRecord) -> dict[str, object]:
    """The event and what is said of it, without secrets."""
    entry = record.msg if isinstance(record.msg, Entry) else Entry(record.getMessage())
    said = {"event": entry.event, **entry.fields}
    # Each by itself: JSON around it would escape what is in a secret, and it would not be found.
    return {name: _redacted(value) for name, value in said.items()}


def _redacted(value: object) -> object:
    return value if isinstance(value, int | float | None) else redact(str(value))


def _trouble(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _quoted(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
