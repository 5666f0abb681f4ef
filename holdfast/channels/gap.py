"""Messages of a gap that a person has answered meanwhile, for channels that leave those out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GapMessage:
    """A message of a gap, with the fields that tell which messages it answers."""

    id: str
    sender: str
    is_person: bool = True
    """Whether it counts as an answer; those of bots do not."""
    thread: str | None = None
    """Id of the thread, which may be that of its first message; None outside of threads."""
    replies_to: frozenset[str] = frozenset()
    """Ids of the messages that it answers."""


def find_answered(messages: Iterable[GapMessage]) -> set[str]:
    """Return the ids of messages that another person has answered since, in their thread or by a
    reply. Takes the messages oldest first."""
    found: set[str] = set()
    writers: dict[str, set[str]] = {}
    for message in reversed(list(messages)):
        keys = {message.id, message.thread or message.id}
        if any(_has_others(writers.get(key), message.sender) for key in keys):
            found.add(message.id)
        if message.is_person:
            for key in message.replies_to | ({message.thread} if message.thread else set()):
                writers.setdefault(key, set()).add(message.sender)
    return found


def _has_others(writers: set[str] | None, sender: str) -> bool:
    return bool(writers) and writers != {sender}
