"""Reads messages of a mailbox: sender, thread and text."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from email import policy
from email.headerregistry import BaseHeader, HeaderRegistry
from email.message import EmailMessage
from email.parser import BytesParser
from email.utils import getaddresses, parsedate_to_datetime

from holdfast.channels.admission import Sender
from holdfast.channels.email.text import text_of
from holdfast.channels.gap import GapMessage
from holdfast.message import Payload
from holdfast.queue.event import NewEvent

CHANNEL = "email"
LONGEST_ID = 200
"""Characters of a Message-ID that stands in our ids; a longer one is hashed."""
MOST_REFERENCES = 50
AUTOMATIC = frozenset(("bulk", "list", "junk", "auto_reply"))
"""Values of the header Precedence in mail from programs and mailing lists."""
LISTS = ("List-Id", "List-Post", "List-Unsubscribe", "X-Autoreply", "X-Autorespond")
DAEMONS = ("mailer-daemon", "postmaster", "no-reply", "noreply")
_PASSED = re.compile(r"\bdmarc=pass\b")
_ID = re.compile(r"<[^<>\s]{1,900}>")
_OURS = re.compile(r"<hf\.[0-9a-f]{24}\.([0-9a-f]{24})@[^<>]+>")


class _Headers(HeaderRegistry):
    """Parses headers. One that the standard library cannot parse loses its parameters or all."""

    def __call__(self, name: str, value: str) -> BaseHeader:
        is_mime = name.lower().startswith("content-")
        for text in (value, value.partition(";")[0]) if is_mime else (value,):
            # For example, `filename*` without a value raises IndexError.
            with suppress(Exception):
                return super().__call__(name, text)
        return super().__call__(name, "")


# max_line_length and refold concern writing alone.
_POLICY = policy.default.clone(header_factory=_Headers())


def parse(source: bytes) -> EmailMessage:
    """Parse a message. Malformed ones are read as far as possible."""
    return BytesParser(_class=EmailMessage, policy=_POLICY).parsebytes(source)


def short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()


def header(message: EmailMessage, name: str) -> str:
    """Return a header as text; '' if it is missing or cannot be parsed."""
    try:
        return str(message.get(name) or "").replace("\r", " ").replace("\n", " ").strip()
    except Exception:  # noqa: BLE001 - the parser raises many errors for hostile headers
        return ""


class Incoming:
    """A message of a mailbox. Its headers are enough for everything but the text."""

    def __init__(self, message: EmailMessage, address: str) -> None:
        self.message = message
        self._address = address
        named = getaddresses([header(message, "From")])
        self.name, sender = named[0] if named else ("", "")
        self.sender = sender.lower()

    @property
    def id(self) -> str:
        """The Message-ID; made of other headers if there is none."""
        found = _ID.search(header(self.message, "Message-ID"))
        if found:
            return found[0]
        parts = [header(self.message, name) for name in ("From", "Date", "Subject", "Received")]
        return f"<{short_hash(' '.join(parts))}@without-id>"

    @property
    def references(self) -> list[str]:
        """The earlier messages of the thread, oldest first."""
        listed: list[str] = _ID.findall(header(self.message, "References"))
        answered = _ID.findall(header(self.message, "In-Reply-To"))
        return (
            listed[:1]
            + (listed[1:] + [id for id in answered if id not in listed])[-MOST_REFERENCES:]
        )

    @property
    def conversation(self) -> str:
        """The thread: named by its first message, or by one of our own ids."""
        for id in self.references:
            if found := _OURS.fullmatch(id):
                return f"{CHANNEL}:{found[1]}"
        root = (self.references or [self.id])[0]
        return f"{CHANNEL}:{short_hash(root)}"

    @property
    def is_automatic(self) -> bool:
        """Whether a program sent it, such as an absence notice or a mailing list.

        Answering those would make loops."""
        submitted = header(self.message, "Auto-Submitted").partition(";")[0].strip().lower()
        return (
            submitted not in ("", "no")
            or header(self.message, "Precedence").lower() in AUTOMATIC
            or header(self.message, "Return-Path") == "<>"
            or any(name in self.message for name in LISTS)
            or self.sender.partition("@")[0] in DAEMONS
        )

    @property
    def is_own(self) -> bool:
        return self.sender == self._address

    def is_authentic(self, server: str) -> bool:
        """Return whether our mail server says that the sender's domain vouches for it."""
        # The newest header stands first. Older ones may be forged.
        results = (self.message.get_all("Authentication-Results") or [""])[0]
        name, _, checks = str(results).partition(";")
        return name.split()[:1] == [server] and _PASSED.search(checks) is not None

    @property
    def sent_at(self) -> datetime | None:
        try:
            sent_at = parsedate_to_datetime(header(self.message, "Date"))
        except (ValueError, TypeError, OverflowError):
            return None
        return sent_at if sent_at.tzinfo else sent_at.replace(tzinfo=UTC)

    def as_sender(self) -> Sender:
        """Return the sender, as far as admission depends on it."""
        return Sender(
            id=self.sender,
            name=self.name or self.sender,
            conversation=self.conversation,
            is_direct=True,
            domain=self.sender.rpartition("@")[2],
            sent_at=self.sent_at,
        )

    def as_gap_message(self) -> GapMessage:
        """Return the message with the ids that it answers: those before it in its thread."""
        is_person = bool(self.sender) and not self.is_own and not self.is_automatic
        replies_to = frozenset(self.references)
        return GapMessage(
            id=self.id, sender=self.sender, is_person=is_person, replies_to=replies_to
        )

    @property
    def payload(self) -> Payload:
        """The payload without the text."""
        return {
            "kind": "message",
            "channel": CHANNEL,
            "sender": self.name or self.sender,
            "sender_id": self.sender,
            "conversation": self.conversation,
            "is_direct": True,
            "subject": header(self.message, "Subject")[:500],
            "email_account": self._address,
            "email_id": self.id,
            "references": self.references,
        }

    @property
    def message_id(self) -> str:
        """The id of the event that is stored for it."""
        id = self.id if len(self.id) <= LONGEST_ID else short_hash(self.id)
        return f"{CHANNEL}_{self._address}_{id}"

    @property
    def event(self) -> NewEvent:
        """The event to store. Without a text, the subject is the message."""
        event = self.event_of_headers
        text = text_of(self.message)
        files = [part.get_filename() or "file" for part in self.message.iter_attachments()]
        further: Payload = {"message": text} if text else {}
        if files:
            further["attachments"] = files[:100]
        return replace(event, event=event.event | further)

    @property
    def event_of_headers(self) -> NewEvent:
        """The event of a message whose text cannot be parsed: the subject is the message."""
        payload = self.payload | {"message": header(self.message, "Subject")}
        return NewEvent(event=payload, message_id=self.message_id, event_ts=self.sent_at)
