"""How far and how often messages are handed on between agents before they are stopped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.event import Event, Turn
from holdfast.outcome import Dead, Outcome, Retry
from holdfast.store.base import Store

HOPS = 8
"""Hand-offs from the root message."""
BUDGET = 64
"""Messages that are handed on from one root message, at whatever remove."""
FURTHER = "further"
"""How many messages of the same reply a stopped one stands for."""
STOPPED = ("hop_limit", "budget")
LET_THROUGH = {"let_through": True}


async def stopped(store: Store, turn: Turn) -> Outcome | None:
    """The end of a turn that was handed on too far, or is one too many; a person's retry lets it through."""
    if all(event.hops == 0 for event in turn.events):
        return None
    end = await _too_many(store, [event for event in turn.events if event.hops > 0 and not _is_let_through(event)])
    if end is None:
        if turn.primary.error_class in STOPPED and len(turn.events) == 1:
            await store.checkpoint(turn, LET_THROUGH)
        return None
    if len(turn.events) > 1:
        return Retry("not all of these go through: they are worked one by one", timedelta(0), "one_by_one")
    return end


def _is_let_through(event: Event) -> bool:
    return event.error_class in STOPPED or event.state == LET_THROUGH


async def _too_many(store: Store, events: Sequence[Event]) -> Dead | None:
    for event in events:
        if event.hops > HOPS:
            return Dead(f"hop limit: {HOPS} hand-offs from {_root(event)}{_tail(event)}", "hop_limit")
    # Of one root, what is fine for the last is fine for those before it.
    for event in {event.root_id: event for event in events}.values():
        if await store.handed_on(event.root_id or event.id, event.id) >= BUDGET:
            return Dead(f"budget: {BUDGET} messages from {_root(event)}{_tail(event)}", "budget")
    return None


def _root(event: Event) -> str:
    return f"message {event.event.get('origin_id') or event.root_id}"


def _tail(event: Event) -> str:
    payload = event.event
    sender, further = payload.get("from_agent"), payload.get(FURTHER)
    more = f", with {further} more of the same reply" if further else ""
    return f"; stopped what @{sender} sent to @{event.target}{more}" if sender else more
