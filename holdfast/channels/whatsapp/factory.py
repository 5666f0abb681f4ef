"""Build the WhatsApp channel from its settings."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.channels import Setup
from holdfast.channels.whatsapp import WhatsAppChannel
from holdfast.channels.whatsapp.access import access_of
from holdfast.settings.channels.whatsapp import WhatsApp


def whatsapp_channel(setup: Setup, numbers: Sequence[WhatsApp]) -> WhatsAppChannel:
    """Return the channel of all numbers."""
    settings = setup.settings
    accesses = [access_of(number, settings.pairing) for number in numbers]
    return WhatsAppChannel(
        accesses, store=setup.store, files=settings.files, oldest=settings.dedup_window
    )
