"""Variables of the environment that are no settings of ours: tokens, and where telemetry goes."""

from __future__ import annotations

import os

PREFIX = "HOLDFAST_"
SLACK_TOKENS = {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_APP_TOKEN": "xapp-", "SLACK_SIGNING_SECRET": ""}
"""Variables that Slack's own documents name, and how their values begin."""
EXPORTERS = ("LOGFIRE_TOKEN", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def slack_tokens() -> dict[str, str]:
    """The tokens of Slack that are set, by the names of their variables."""
    return {name: os.environ[name] for name in SLACK_TOKENS if os.environ.get(name)}


def service_name() -> str | None:
    """Name under which spans and metrics are sent unless a setting says another, None where nobody takes them."""
    taken = any(os.environ.get(name) for name in EXPORTERS)
    return os.environ.get("OTEL_SERVICE_NAME") or "holdfast" if taken else None


def variable_of(setting: str) -> str:
    """The variable that a setting is read from."""
    return f"{PREFIX}{setting.upper()}"


def is_set(variable: str) -> bool:
    return bool(os.environ.get(variable))
