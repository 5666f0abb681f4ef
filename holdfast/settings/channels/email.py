"""[channels.email]: a mailbox."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from holdfast.settings.channels.table import ChannelTable


class Email(ChannelTable):
    """A mailbox. Without any table, EMAIL_IMAP_URL, EMAIL_SMTP_URL and EMAIL_ADDRESS turn it on."""

    required: ClassVar[tuple[str, ...]] = (
        "imap_url_variable",
        "smtp_url_variable",
        "address_variable",
    )

    imap_url_variable: str = "EMAIL_IMAP_URL"
    """Environment variable with the address of the mailbox, imaps://user:password@host/INBOX."""
    smtp_url_variable: str = "EMAIL_SMTP_URL"
    """Environment variable with the address for sending, smtps://user:password@host."""
    address_variable: str = "EMAIL_ADDRESS"
    """Environment variable with the e-mail address of the agents."""
    authentication_server: str = Field(default="", examples=["mx.example.org"])
    """Name of your mail server in Authentication-Results. If set, only messages that passed its
    DMARC check are read; without it, anybody can write in the name of somebody else."""
    skip_answered: bool = False
    """After a time without a connection, leave out messages that a person has answered since: they
    are marked as answered in the mailbox, or somebody else has replied to them."""
