"""A message before it is stored: its text, its files, and the message that it replaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.chat import NewVersion, SentFiles
from holdfast.message import Payload, subject_of
from holdfast.queue.record import Record
from holdfast.routing.router import Address, message


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message to store."""

    text: str
    agent: str | None = None
    files: Sequence[Payload] = ()
    """Id, name, size and type of the uploads that it carries."""
    original: str | None = None
    """The first version of the message that it replaces."""

    def records(self, message_id: str, address: Address, owner: str | None) -> Iterator[Record]:
        """Yield the records to store with the message."""
        conversation = address.conversation
        if self.files:
            yield SentFiles(
                ids=[file["id"] for file in self.files],
                owner=owner,
                message_id=message_id,
                conversation=conversation,
                subject=subject_of(message(self.text, address)),
            )
        if self.original is not None:
            yield NewVersion(
                message_id=message_id, original=self.original, conversation=conversation
            )
