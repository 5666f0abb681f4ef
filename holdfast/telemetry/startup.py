"""Starts what a process tells of itself, once, before it has anything to tell."""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast.settings import Settings
from holdfast.telemetry import logs, spans
from holdfast.telemetry.redaction import hide


def start(settings: Settings) -> None:
    """Lines on stderr always; spans and metrics to whoever the environment names."""
    for url in (settings.database, settings.database_direct):
        hide(url)
    logs.start(level=settings.log_level, as_json=settings.log_format == "json")
    database = urlsplit(settings.database)
    # The same for all processes on one database, so that they agree on the trace of a message.
    place = f"{database.netloc.rpartition('@')[2]}{database.path}"
    spans.start(service=settings.exports_as, ratio=settings.trace_ratio, place=place)
