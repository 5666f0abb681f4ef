"""[channels.x]: the chat platforms. Tables name the variables that hold tokens, never tokens."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

from pydantic import Field, model_validator

from holdfast.settings.channels.discord import Discord
from holdfast.settings.channels.email import Email
from holdfast.settings.channels.matrix import Matrix
from holdfast.settings.channels.slack import Slack
from holdfast.settings.channels.telegram import Telegram
from holdfast.settings.channels.whatsapp import WhatsApp
from holdfast.settings.table import Table, tables_in

ENTRY_POINTS = "holdfast.channels"
"""Group of the entry points by which packages add channels."""


class Channels(Table):
    """Chat platforms, beside the API. A single table may be written without a list."""

    slack: tuple[Slack, ...] = ()
    """A Slack workspace; repeat the table for several. A single one needs only its tokens."""
    matrix: tuple[Matrix, ...] = ()
    """A Matrix account; repeat the table for several. A single one needs only its variables."""
    discord: tuple[Discord, ...] = ()
    """A bot on Discord; repeat the table for several. A single one needs only its token."""
    telegram: tuple[Telegram, ...] = ()
    """A bot on Telegram; repeat the table for several. A single one needs only its token."""
    whatsapp: tuple[WhatsApp, ...] = ()
    """A number on WhatsApp; repeat the table for several. A single one needs only its variables."""
    email: tuple[Email, ...] = ()
    """A mailbox; repeat the table for several. A single one needs only its variables."""
    # Tables of installed channels, by name. No key of its own, so `holdfast init` leaves it out.
    installed: dict[str, tuple[dict[str, Any], ...]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _sort_tables(cls, given: Any) -> Any:
        """Make single tables lists, and set the tables of installed channels apart."""
        if not isinstance(given, dict):
            return given
        lists = {name: [one] if isinstance(one, dict) else one for name, one in given.items()}
        unknown = lists.keys() - cls.model_fields.keys()
        installed = unknown & installed_channels().keys() if unknown else set()
        found = {name: lists.pop(name) for name in sorted(installed)}
        return lists | {"installed": found} if found else lists


def installed_channels() -> dict[str, Any]:
    """Return the entry points of installed channels, by name."""
    return {one.name: one for one in entry_points(group=ENTRY_POINTS)}


def channel_variables() -> Iterator[str]:
    """Yield the variables that hold the secrets of a channel without a table."""
    for field in Channels.model_fields.values():
        for table in tables_in(field):
            for name, value in table.model_fields.items():
                if name.endswith("_variable"):
                    yield str(value.default)
