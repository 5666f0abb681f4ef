"""Build the e-mail channel from its settings."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.channels import Setup
from holdfast.channels.email import EmailChannel
from holdfast.channels.email.access import access_of
from holdfast.settings.channels.email import Email


def email_channel(setup: Setup, mailboxes: Sequence[Email]) -> EmailChannel:
    """Return the channel of all mailboxes."""
    accesses = [access_of(mailbox, setup.settings.pairing) for mailbox in mailboxes]
    return EmailChannel(accesses, setup.store, files=setup.settings.files)
