"""A message of the bot: its destination, sending it once, and editing it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.channels.base import Undeliverable
from holdfast.channels.matrix.homeserver import Homeserver, transaction_id
from holdfast.channels.matrix.html import edit_content, text_content
from holdfast.channels.matrix.incoming import Location, location_of
from holdfast.message import Payload

NOT_EDITABLE = ("M_NOT_FOUND", "M_TOO_LARGE")
"""Error codes of an edit after which the text is sent as a new message."""
PART = "org.holdfast.part"
"""Key of a content by which a message can be found after its transaction id was forgotten."""
PLACEHOLDER = "…"


@dataclass(frozen=True, slots=True)
class Post:
    """One message. Its transaction id derives from its key, so sending it again sends nothing."""

    homeserver: Homeserver
    location: Location
    key: str

    async def post(self, text: str) -> str:
        """Send the message. Returns its event id."""
        return await self.send(text_content(text))

    async def send(self, content: Payload) -> str:
        """Send a message of any type to the conversation. Returns its event id."""
        related = content | relation_to(self.location) | {PART: transaction_id(self.key)}
        return await self.homeserver.send(self.location.room, "m.room.message", related, self.key)

    async def edit(self, id: str, text: str) -> bool:
        """Replace the text of a message. Returns False if it is too late."""
        content = edit_content(id, text) | {PART: transaction_id(self.key)}
        try:
            await self.homeserver.send(
                self.location.room, "m.room.message", content, f"{self.key} {text}"
            )
        except Undeliverable as error:
            if error.code not in NOT_EDITABLE:
                raise
            return False
        return True

    async def delete(self, id: str) -> None:
        """Redact a message, unless it is gone."""
        try:
            await self.homeserver.redact(self.location.room, id, f"{self.key} redact")
        except Undeliverable as error:
            if error.code != "M_NOT_FOUND":
                raise

    async def find(self, key: str) -> str | None:
        """Return the id of the message with this key.

        Sending it again returns the id of the first one. If there was none, this posts a
        placeholder, which the caller edits."""
        return await Post(self.homeserver, self.location, key).post(PLACEHOLDER)


def relation_to(location: Location) -> Payload:
    """Return the relation of a message to its thread; {} outside of threads."""
    if location.thread is None:
        return {}
    # Clients without threads show it as a reply.
    reply = {"event_id": location.answered or location.thread}
    relation = {
        "rel_type": "m.thread",
        "event_id": location.thread,
        "is_falling_back": True,
        "m.in_reply_to": reply,
    }
    return {"m.relates_to": relation}


def destination_of(response: Payload) -> Location | str:
    """Read the destination of a response: a conversation, or the id of a person.

    Raises Undeliverable if it names none."""
    location = location_of(response)
    if location is not None:
        return location
    for name in ("sender_id", "sender"):
        given = str(response.get(name) or "")
        if given.startswith("!"):
            return Location(given)
        if given.startswith("@") and ":" in given:
            return given
    raise Undeliverable(
        "no_address", "the response names neither a conversation nor the id of a room or a person"
    )
