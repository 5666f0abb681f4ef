"""Messages to a person: their destination, texts and files."""

from __future__ import annotations

import mimetypes
import re
from dataclasses import dataclass

from holdfast.channels.base import Undeliverable
from holdfast.channels.files import too_large
from holdfast.channels.whatsapp.access import MEBIBYTE
from holdfast.channels.whatsapp.client import CHANNEL
from holdfast.message import Payload

LARGEST = {"image": 5 * MEBIBYTE, "audio": 16 * MEBIBYTE, "video": 16 * MEBIBYTE}
LARGEST_DOCUMENT = 100 * MEBIBYTE
KINDS = {
    "image/jpeg": "image",
    "image/png": "image",
    "audio/aac": "audio",
    "audio/mpeg": "audio",
    "audio/ogg": "audio",
    "video/mp4": "video",
}
"""Types that WhatsApp shows; all others are documents."""
_CONVERSATION = re.compile(r"whatsapp:(?:(\d{1,30})@)?(\d{1,30})")
_ANSWERED = re.compile(r"whatsapp_(\d{1,30})_(\d{1,30})_(.{1,120})", re.DOTALL)
_PERSON = re.compile(r"\+?(\d{5,20})")


@dataclass(frozen=True, slots=True)
class Destination:
    """Target of a response. `number` is None if the response names none of ours."""

    number: str | None
    person: str
    answered: str | None = None
    """WhatsApp's id of the message that is answered."""

    def message(self, kind: str, content: Payload) -> Payload:
        """Return the body of a request that sends a message."""
        return {
            "messaging_product": CHANNEL,
            "recipient_type": "individual",
            "to": self.person,
            "type": kind,
            kind: content,
        }


def destination_of(response: Payload) -> Destination:
    """Read the destination of a response. Raises Undeliverable if it names none."""
    answered = _ANSWERED.fullmatch(str(response.get("message_id") or ""))
    found = _CONVERSATION.fullmatch(str(response.get("conversation") or ""))
    number = answered[1] if answered else None
    if found is None:
        return Destination(number, _recipient(response))
    is_answer = answered is not None and answered[2] == found[2]
    id_ = answered[3] if answered is not None and is_answer else None
    return Destination(found[1] or number, found[2], id_)


def _recipient(response: Payload) -> str:
    """Return the person of a proactive message."""
    for name in ("sender_id", "sender"):
        if found := _PERSON.fullmatch(str(response.get(name) or "")):
            return found[1]
    raise Undeliverable(
        "no_address", "the response names neither a conversation nor the number of a person"
    )


def kind_of(name: str, size: int) -> tuple[str, str]:
    """Return how WhatsApp shows a file, and its type.

    Raises Undeliverable for one that is too large. A large picture is sent as a document."""
    mime_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    kind = KINDS.get(mime_type, "document")
    if size > LARGEST.get(kind, LARGEST_DOCUMENT):
        kind = "document"
    if size > LARGEST_DOCUMENT:
        raise Undeliverable("file_too_large", f"{name} {too_large(LARGEST_DOCUMENT)}")
    return kind, mime_type


def shown_file(kind: str, media_id: str, name: str) -> Payload:
    """Return the content of a message with an uploaded file."""
    return {"id": media_id} | ({"filename": name} if kind == "document" else {})
