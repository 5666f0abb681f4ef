"""Build the Telegram channel from its settings."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.channels import Setup
from holdfast.channels.telegram import TelegramChannel
from holdfast.channels.telegram.access import access_of
from holdfast.settings.channels.telegram import Telegram


def telegram_channel(setup: Setup, bots: Sequence[Telegram]) -> TelegramChannel:
    """Return the channel of all bots."""
    settings = setup.settings
    accesses = [access_of(bot, settings.pairing) for bot in bots]
    return TelegramChannel(accesses, store=setup.store, files=settings.files)
