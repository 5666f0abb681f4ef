"""Every setting once, with its unit; the only reader of the environment and of holdfast.toml."""

from __future__ import annotations

import os

# Where logfire is installed, the first pydantic model would import all of it: a third of a second before any work.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "logfire-plugin")
# A collector that is away would hold up the end of the process for as long as this, which is ten seconds by itself.
os.environ.setdefault("OTEL_EXPORTER_OTLP_TIMEOUT", "2")

from holdfast.settings.channels import Slack, SlackTokens, slack_is_off
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
    "slack_is_off",
    "slack_tokens",
    "sqlite_path",
    "value_text",
]
