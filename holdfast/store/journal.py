"""Helpers for journals on every engine: storable texts, checked positions, and joined rows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.errors import HoldfastError, LeaseLost
from holdfast.queue.journal import JournalEntry, Write
from holdfast.queue.turn import LeasedTurn

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def stored_text(text: str) -> str:
    """Replace each character that no engine can store by one U+FFFD, so that offsets stay right."""
    return _UNSTORABLE.sub("\ufffd", text)


def check_position(event_id: int, write: Write, generation: int, length: int) -> None:
    """Raise HoldfastError if a write leaves a gap in the text, or is of an earlier generation.

    `generation` and `length` are those of the stored text."""
    end = length if write.generation == generation else 0
    if write.generation < generation or not 0 <= write.offset <= end:
        raise HoldfastError(
            f"the text of event {event_id} has {length} characters in generation {generation};"
            f" cannot write at {write.offset} of generation {write.generation}"
        )


def text_from(rows: Sequence[tuple[int, str]], offset: int) -> str:
    """Join rows of (position, text) and cut what lies before the offset."""
    if not rows:
        return ""
    text = "".join(text for _, text in rows)
    return text[max(offset - rows[0][0], 0) :]


def size_of(entry: JournalEntry) -> int:
    """Return about how many characters an entry stores."""
    steps = sum(len(step.result or "") + len(step.arguments or "") for step in entry.steps)
    return steps + (len(entry.write.text) if entry.write else 0)


def lease_lost(turn: LeasedTurn) -> LeaseLost:
    """Return the error of a holder that lost its turn."""
    return LeaseLost(f"the lease on event {turn.primary.id} is lost; drop the work")
