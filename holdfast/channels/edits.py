"""Edits and deletions on the platform: they count until an agent has claimed the message."""

from __future__ import annotations

from holdfast.message import written_of
from holdfast.queue.event import Event, FinishedEvent
from holdfast.queue.store import Store
from holdfast.store.chain import find_message


async def edit_message(store: Store, message_id: str, text: str) -> bool:
    """Give a message another text. Returns False if it was claimed, has ended or is unknown.

    It keeps its agent, even if the new text names another."""
    found = await _live_message(store, message_id)
    if found is None:
        return False
    # A payload as Slack sent it has no kind.
    key = "message" if "kind" in found.event else "text"
    return await store.amend(found.id, {**found.event, key: text}, _routed_text(found, text))


async def withdraw_message(store: Store, message_id: str) -> bool:
    """Erase a message that its sender deleted. Returns False if that comes too late."""
    found = await _live_message(store, message_id)
    return found is not None and await store.amend(found.id, None)


async def _live_message(store: Store, message_id: str) -> Event | None:
    found = await find_message(store, message_id)
    return None if isinstance(found, FinishedEvent) else found


def _routed_text(message: Event, text: str) -> str | None:
    """Return the new text without the prefix that named the agent; None without a prefix."""
    if message.routed_text is None:
        return None
    prefix = written_of(message.event).removesuffix(message.routed_text)
    return text.removeprefix(prefix) if prefix and text.startswith(prefix) else None
