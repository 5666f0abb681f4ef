"""Start of logs, spans and metrics."""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast.settings import Settings
from holdfast.telemetry import logs, spans
from holdfast.telemetry.redaction import hide


def start(settings: Settings) -> None:
    """Log to stderr, and export spans and metrics if the environment names a collector."""
    for secret in (settings.database, settings.database_direct, settings.oidc_client_secret):
        hide(secret)
    logs.start(level=settings.log_level, as_json=settings.log_format == "json")
    database = urlsplit(settings.database)
    # All processes on one database share this scope, so that they agree on trace ids.
    scope = f"{database.netloc.rpartition('@')[2]}{database.path}"
    spans.start(service=settings.exports_as, ratio=settings.trace_ratio, scope=scope)
