"""Reads the webhooks of WhatsApp: signatures, messages and failed deliveries."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.channels.admission import Sender
from holdfast.channels.whatsapp.client import CHANNEL
from holdfast.message import Payload
from holdfast.queue.event import NewEvent

SIGNATURE = "x-hub-signature-256"
WAMID = "wamid"
"""Key of a message: WhatsApp's own id of it."""
FILE_KINDS = ("image", "document", "audio", "video", "sticker")
LONGEST_ID = 120


def is_signed(secret: str, body: bytes, signature: str) -> bool:
    """Return whether the app secret signed the body. It takes the same time for all signatures."""
    expected = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
    return bool(secret) and hmac.compare_digest(expected.encode(), signature.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One message of a person."""

    phone_number_id: str
    sender_id: str
    sender_name: str
    id: str
    """WhatsApp's own id, wamid.…"""
    text: str
    sent_at: datetime
    attachments: tuple[Payload, ...] = ()
    has_other_numbers: bool = False

    @property
    def conversation(self) -> str:
        owner = f"{self.phone_number_id}@" if self.has_other_numbers else ""
        return f"{CHANNEL}:{owner}{self.sender_id}"

    @property
    def message_id(self) -> str:
        return f"{CHANNEL}_{self.phone_number_id}_{self.sender_id}_{self.id}"

    @property
    def sender(self) -> Sender:
        return Sender(
            id=self.sender_id,
            name=self.sender_name,
            conversation=self.conversation,
            # WhatsApp's times are whole seconds. An approval in the same second came before.
            sent_at=self.sent_at + timedelta(seconds=1),
        )

    @property
    def payload(self) -> Payload:
        return {
            "kind": "message",
            "channel": CHANNEL,
            "sender": self.sender_name,
            "sender_id": self.sender_id,
            "message": self.text,
            "conversation": self.conversation,
            "is_direct": True,
            WAMID: self.id,
            **({"attachments": list(self.attachments)} if self.attachments else {}),
        }

    @property
    def event(self) -> NewEvent:
        return NewEvent(event=self.payload, message_id=self.message_id, event_ts=self.sent_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A message of ours that WhatsApp accepted and then could not deliver."""

    id: str
    recipient: str
    phone_number_id: str
    error: Payload


def messages_of(body: Any, *, has_other_numbers: bool) -> Iterator[Incoming]:
    """Yield the messages of a webhook, in its order. Malformed ones are skipped."""
    for value in _values(body):
        number = _text(_dict(value.get("metadata")).get("phone_number_id"))
        names = {
            _text(contact.get("wa_id")): _text(_dict(contact.get("profile")).get("name"))
            for contact in _dicts(value.get("contacts"))
        }
        for message in _dicts(value.get("messages")):
            sender, id_ = _text(message.get("from")), _text(message.get("id"))
            sent_at = _moment(message.get("timestamp"))
            text, attachments = _content(message)
            if number and sender and id_ and sent_at and (text or attachments):
                yield Incoming(
                    phone_number_id=number,
                    sender_id=sender,
                    sender_name=names.get(sender) or sender,
                    id=id_,
                    text=text,
                    sent_at=sent_at,
                    attachments=attachments,
                    has_other_numbers=has_other_numbers,
                )


def failures_of(body: Any) -> Iterator[Failure]:
    """Yield the failed deliveries of a webhook; all other statuses are ignored."""
    for value in _values(body):
        number = _text(_dict(value.get("metadata")).get("phone_number_id"))
        for status in _dicts(value.get("statuses")):
            errors = _dicts(status.get("errors"))
            id_, recipient = _text(status.get("id")), _text(status.get("recipient_id"))
            if status.get("status") == "failed" and errors and id_ and recipient and number:
                yield Failure(id=id_, recipient=recipient, phone_number_id=number, error=errors[0])


def _content(message: Payload) -> tuple[str, tuple[Payload, ...]]:
    """Return text and files of a message; neither for reactions and unknown kinds."""
    kind = _text(message.get("type"))
    part = _dict(message.get(kind))
    if kind == "text":
        return _body(part.get("body")), ()
    if kind == "button":
        return _body(part.get("text")), ()
    if kind == "interactive":
        reply = _dict(part.get("button_reply")) or _dict(part.get("list_reply"))
        return _body(reply.get("title")), ()
    if kind in FILE_KINDS and _text(part.get("id")):
        name = part.get("filename") or f"{kind}{_ending(part.get('mime_type'))}"
        return _body(part.get("caption")), ({"id": _text(part.get("id")), "name": str(name)},)
    return "", ()


def _ending(mime_type: object) -> str:
    """Return a file ending for a type such as audio/ogg; codecs=opus."""
    kind = str(mime_type or "").partition(";")[0].partition("/")[2].strip()
    return f".{kind.replace('jpeg', 'jpg')}" if kind.isalnum() else ""


def _values(body: Any) -> Iterator[Payload]:
    if _dict(body).get("object") == "whatsapp_business_account":
        for entry in _dicts(body.get("entry")):
            for change in _dicts(entry.get("changes")):
                if change.get("field") == "messages":
                    yield _dict(change.get("value"))


def _dict(value: Any) -> Payload:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Payload]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    """Return a value that can be an id; an empty text if it is malformed or too long."""
    is_id = isinstance(value, str) and value.isprintable() and len(value) <= LONGEST_ID
    return value if is_id else ""


def _body(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _moment(value: Any) -> datetime | None:
    """Convert WhatsApp's seconds. Returns None for an invalid time."""
    try:
        return datetime.fromtimestamp(int(value), UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
