"""[channels.whatsapp]: numbers of the WhatsApp Cloud API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import Field

from holdfast.settings.channels.table import ChannelTable
from holdfast.settings.environment import variable


class WhatsApp(ChannelTable):
    """A number of the WhatsApp Cloud API. Without any table, its variables turn one on."""

    required: ClassVar[tuple[str, ...]] = (
        "token_variable",
        "phone_number_id_variable",
        "app_secret_variable",
        "verify_token_variable",
    )

    token_variable: str = "WHATSAPP_TOKEN"  # noqa: S105
    """Environment variable with the access token of a system user."""
    phone_number_id_variable: str = "WHATSAPP_PHONE_NUMBER_ID"
    """Environment variable with the id of the phone number, which is not the number itself."""
    app_secret_variable: str = "WHATSAPP_APP_SECRET"  # noqa: S105
    """Environment variable with the app secret, which verifies requests to /whatsapp/webhook."""
    verify_token_variable: str = "WHATSAPP_VERIFY_TOKEN"  # noqa: S105
    """Environment variable with the text that you give Meta to verify the webhook."""
    api_url: str = Field(default="", examples=["https://graph.facebook.com/v23.0"])
    """Base URL of the Graph API, with or without a version; WHATSAPP_API_URL sets it for all."""

    def secrets(self) -> WhatsAppSecrets:
        """Read the variables."""
        return WhatsAppSecrets(
            token=variable(self.token_variable),
            phone_number_id=variable(self.phone_number_id_variable),
            app_secret=variable(self.app_secret_variable),
            verify_token=variable(self.verify_token_variable),
            api_url=self.api_url or variable("WHATSAPP_API_URL"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatsAppSecrets:
    """Secrets and address of one number; an empty text means not set."""

    token: str = field(default="", repr=False)
    phone_number_id: str = ""
    app_secret: str = field(default="", repr=False)
    verify_token: str = field(default="", repr=False)
    api_url: str = ""
