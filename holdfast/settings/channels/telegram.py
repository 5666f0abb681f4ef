"""[channels.telegram]: bots of Telegram."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import Field

from holdfast.settings.channels.table import ChannelTable
from holdfast.settings.environment import variable


class Telegram(ChannelTable):
    """A bot of Telegram. Without any table, TELEGRAM_BOT_TOKEN alone turns one on."""

    required: ClassVar[tuple[str, ...]] = ("token_variable",)

    token_variable: str = "TELEGRAM_BOT_TOKEN"  # noqa: S105
    """Environment variable with the token that @BotFather gave."""
    webhook_secret_variable: str = "TELEGRAM_WEBHOOK_SECRET"  # noqa: S105
    """Environment variable with the secret of the webhook. If it is set, Telegram sends updates to
    /telegram/webhook; else they are polled."""
    api_url: str = Field(default="", examples=["http://127.0.0.1:8081"])
    """Base URL of another Bot API server; TELEGRAM_API_URL sets it for all bots."""

    def secrets(self) -> TelegramSecrets:
        """Read the variables."""
        return TelegramSecrets(
            token=variable(self.token_variable),
            webhook_secret=variable(self.webhook_secret_variable),
            api_url=self.api_url or variable("TELEGRAM_API_URL"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramSecrets:
    """Secrets and address of one bot; an empty text means not set."""

    token: str = field(default="", repr=False)
    webhook_secret: str = field(default="", repr=False)
    api_url: str = ""
