"""Limits on messages between agents: hand-offs, budget and tags."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.queue.event import Event
from holdfast.queue.outcome import Dead, Outcome, Retry
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn

HOPS = 8
"""Hand-offs from the root message."""
BUDGET = 64
"""Messages handed on from one root message, directly or not; room lines and files count, too."""
TAGS = 100
"""Tags of one reply that are followed, of all kinds together."""
FURTHER = "further"
"""Payload key: the number of messages of the same reply that a stopped one stands for."""
STOPPED_TAGS = "stopped_tags"
"""Payload key: the number of tags of a reply that were not followed."""
SPENT = "spent"
"""State key: the number of room lines and files of a turn."""
LIMITS = f"at most {TAGS} tags in a reply, {BUDGET} messages, lines and files"
STOPPED = ("hop_limit", "budget")
NO_EVENT = 2**63 - 1
"""Greater than any id."""
LET_THROUGH = {"let_through": True}


async def check_limits(store: Store, turn: LeasedTurn) -> Outcome | None:
    """Return how a turn beyond a limit ends, else None. If a person retries it, it goes through."""
    if all(event.hops == 0 for event in turn.events):
        return None
    end = await _too_many(
        store, [event for event in turn.events if event.hops > 0 and not _is_let_through(event)]
    )
    if end is None:
        if turn.primary.error_class in STOPPED and len(turn.events) == 1:
            await store.checkpoint(turn, LET_THROUGH)
        return None
    if len(turn.events) > 1:
        return Retry(
            "not all of these go through: they are worked one by one", timedelta(0), "one_by_one"
        )
    return end


def _is_let_through(event: Event) -> bool:
    return event.error_class in STOPPED or event.state == LET_THROUGH


async def used_budget(store: Store, event: Event) -> int:
    """Return the number of messages, lines and files of the root of an event so far."""
    root = event.root_id or event.id
    return await store.handed_on(root, NO_EVENT) + await store.spent(root)


async def _too_many(store: Store, events: Sequence[Event]) -> Dead | None:
    for event in events:
        if event.event.get(STOPPED_TAGS) and FURTHER not in event.event:
            return Dead(_rest(event), "budget")
        if event.hops > HOPS:
            return Dead(
                f"hop limit: {HOPS} hand-offs from {_root(event)}{_tail(event)}", "hop_limit"
            )
    # If the budget of a root suffices for its last event, it suffices for those before it.
    for event in {event.root_id: event for event in events}.values():
        if await store.handed_on(event.root_id or event.id, event.id) >= BUDGET:
            return Dead(f"budget: {BUDGET} messages from {_root(event)}{_tail(event)}", "budget")
    return None


def _root(event: Event) -> str:
    return f"message {event.event.get('origin_id') or event.root_id}"


def _rest(event: Event) -> str:
    sender, stopped = event.event.get("from_agent"), event.event[STOPPED_TAGS]
    return f"budget: {LIMITS} from {_root(event)}; stopped {stopped} tags of a reply of @{sender}"


def _tail(event: Event) -> str:
    payload = event.event
    sender, further = payload.get("from_agent"), payload.get(FURTHER)
    more = f", with {further} more of the same reply" if further else ""
    limits = f" ({LIMITS})" if payload.get(STOPPED_TAGS) else ""
    return f"{limits}; stopped what @{sender} sent to @{event.target}{more}" if sender else more
