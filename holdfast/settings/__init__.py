"""Settings: the only reader of the environment and of holdfast.toml."""

from __future__ import annotations

import os

# The plugin of logfire would make the first pydantic model import all of logfire: 0.3 s.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "logfire-plugin")
# An unreachable collector delays the end of the process by this time; the default is 10 s.
os.environ.setdefault("OTEL_EXPORTER_OTLP_TIMEOUT", "2")

from holdfast.settings.channels.slack import Slack, SlackTokens
from holdfast.settings.database import sqlite_path
from holdfast.settings.duration import Duration, DurationLike, duration, duration_text
from holdfast.settings.environment import SLACK_TOKENS, slack_tokens
from holdfast.settings.fields import Settings
from holdfast.settings.sample import descriptions, sample_toml, value_text
from holdfast.settings.sources import CONFIG_FILE, load, locate_setting
from holdfast.settings.table import Table

__all__ = [
    "CONFIG_FILE",
    "SLACK_TOKENS",
    "Duration",
    "DurationLike",
    "Settings",
    "Slack",
    "SlackTokens",
    "Table",
    "descriptions",
    "duration",
    "duration_text",
    "load",
    "locate_setting",
    "sample_toml",
    "slack_tokens",
    "sqlite_path",
    "value_text",
]
