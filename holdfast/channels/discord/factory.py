"""Build the Discord channel from its settings."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.channels import Setup
from holdfast.channels.discord import DiscordChannel
from holdfast.channels.discord.access import access_of
from holdfast.errors import HoldfastError
from holdfast.settings.channels.discord import Discord


def discord_channel(setup: Setup, bots: Sequence[Discord]) -> DiscordChannel:
    """Return the channel of all bots."""
    accesses = [access_of(bot, setup.settings.pairing) for bot in bots]
    if len({access.api_url for access in accesses}) > 1:
        raise HoldfastError("all bots on Discord need the same api_url")
    return DiscordChannel(accesses, setup.store, files=setup.settings.files)
