"""Deletes a conversation: its messages, and all that came of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.queue.event import INBOX
from holdfast.queue.store import Store
from holdfast.store.engine import is_sqlite, postgres_engine, sqlite_engine
from holdfast.store.payload import parse


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedRows:
    """Numbers of rows that were deleted with a conversation."""

    messages: int
    lines: int
    files: tuple[str, ...] = ()
    """Ids of uploaded files, whose content is left to the caller."""

    @property
    def numbers(self) -> dict[str, int]:
        """The number of rows of each kind."""
        return {"messages": self.messages, "lines": self.lines, "files": len(self.files)}


async def erase_conversation(
    store: Store, conversation: str, channel: str, lanes: Iterable[str], *, actor: str
) -> ErasedRows:
    """Delete messages, responses, journals, lines, frames, files and versions of a conversation.

    `lanes` are those in which its messages may wait. A running turn loses its lease. Memory keeps
    what was learned from the conversation, and rooms of teams keep their lines."""
    erased = await _erase(store, conversation, channel, list(lanes), actor)
    # The next message of a lane may be ready now.
    await store.wake(INBOX)
    return erased


async def _erase(
    store: Store, conversation: str, channel: str, lanes: list[str], actor: str
) -> ErasedRows:
    if is_sqlite(store):
        from holdfast.store.sqlite.erase import erase_conversation as erase

        return await erase(sqlite_engine(store), conversation, channel, lanes, actor)
    erased = await postgres_engine(store).connections.value(
        "select agent.erase_conversation(%s, %s, %s, %s)",
        (conversation, channel, lanes, actor),
    )
    found = parse(erased)
    return ErasedRows(messages=found["messages"], lines=found["lines"], files=tuple(found["files"]))
