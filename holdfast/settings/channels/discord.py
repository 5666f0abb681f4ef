"""[channels.discord]: a bot on Discord."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from holdfast.settings.channels.table import ChannelTable


class Discord(ChannelTable):
    """A bot on Discord. Without any table, DISCORD_BOT_TOKEN alone turns one on."""

    required: ClassVar[tuple[str, ...]] = ("token_variable",)

    token_variable: str = "DISCORD_BOT_TOKEN"  # noqa: S105
    """Environment variable with the token of the bot."""
    api_url: str = Field(default="", examples=["http://127.0.0.1:8080/api/v10"])
    """Base URL of another server that speaks Discord's protocol, the same for all bots;
    DISCORD_API_URL sets it, too."""
    message_content: bool = True
    """Ask for the Message Content Intent, which has to be on in the developer portal. Without it,
    agents see direct messages and mentions, but no other messages of a thread."""
    skip_answered: bool = False
    """After a time without a connection, leave out messages that another person has answered since,
    in their thread or by a reply."""
