"""Schedules of people: their agents are checked, and one can be run at once."""

from __future__ import annotations

from dataclasses import replace

from holdfast.queue.store import Store
from holdfast.routing.router import Routing, receive
from holdfast.store.schedules import Draft, Schedule, Schedules, add_schedule, note_change


async def add_for_agent(store: Store, routing: Routing, draft: Draft, *, actor: str) -> Schedule:
    """Store a schedule for an agent or team; '' is the default agent.

    Raises Unknown or WrongUsage."""
    agent = routing.route_to(draft.agent).agent if draft.agent else routing.default
    return await add_schedule(store, replace(draft, agent=agent), actor=actor)


async def run_now(store: Store, routing: Routing, id: str, *, max_attempts: int, actor: str) -> str:
    """Put the message of a schedule now; its next run stays. Returns the message id."""
    schedule = await Schedules(store).find(id)
    new = schedule.message(await store.now(), max_attempts)
    await receive(store, routing, new, schedule.text)
    await note_change(store, actor, "schedule_ran", schedule)
    assert new.message_id is not None
    return new.message_id
