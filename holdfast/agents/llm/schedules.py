"""Schedules of a language model: tools to be asked again later in the same conversation."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import Any

from pydantic_ai import RunContext, Tool

from holdfast.agents.llm.context import Context
from holdfast.agents.turn import Turn
from holdfast.errors import HoldfastError
from holdfast.message import own_workspace
from holdfast.queue.store import Store
from holdfast.store.schedules import (
    Draft,
    Schedule,
    Schedules,
    build,
    note_change,
    remove_schedule,
    shortest_pause,
)

SHORTEST = timedelta(minutes=10)
"""Shortest time between two runs of a schedule that an agent makes."""
MOST_OF_AGENT = 100
"""Schedules that an agent may have in all conversations together."""
NONE = "there is no schedule in this conversation"


def schedule_tools(most: int) -> list[Tool[Context]]:
    """Return the tools of an agent that may have `most` schedules in each conversation."""
    # A model may call the tool several times at once. Add one at a time, to keep the limit.
    one_at_a_time = asyncio.Lock()

    async def schedule(
        context: RunContext[Context], timing: str, text: str, zone: str = "UTC"
    ) -> str:
        """Have yourself asked a text later, in this conversation.

        Args:
            context: The turn.
            timing: Cron like "0 9 * * mon-fri", "every 2 hours", or a time like 2027-01-31T09:00.
            text: What you will be asked; say all that you need to know then.
            zone: Time zone of the timing, such as Europe/Berlin.
        """
        store, turn = context.deps.app.store, context.deps.turn
        try:
            async with one_at_a_time:
                added = await add(store, turn, timing, text, zone, most)
        except HoldfastError as error:
            return str(error)
        return f"schedule {added.id} runs next at {added.next_at}"

    return [Tool(tool, takes_ctx=True) for tool in (schedule, list_schedules, cancel_schedule)]


async def list_schedules(context: RunContext[Context]) -> str:
    """List your schedules in this conversation."""
    own = await live_schedules(context.deps.app.store, context.deps.turn)
    lines = [f"{one.id}: {one.timing} ({one.zone}), next {one.next_at}: {one.text}" for one in own]
    return "\n".join(lines) or NONE


async def cancel_schedule(context: RunContext[Context], id: str) -> str:
    """Remove one of your schedules in this conversation."""
    store, turn = context.deps.app.store, context.deps.turn
    if id not in [one.id for one in await live_schedules(store, turn)]:
        return f"there is no schedule {id!r} in this conversation"
    await remove_schedule(store, id, actor=f"agent:{turn.agent}")
    return f"schedule {id} is removed"


async def add(store: Store, turn: Turn, timing: str, text: str, zone: str, most: int) -> Schedule:
    """Store a schedule of an agent. Raises HoldfastError, whose text is for the model."""
    draft = Draft(timing=timing, text=text, agent=turn.agent, zone=zone)
    # The same call in a later attempt is the same schedule.
    key = "\n".join([turn.message_id or str(turn.primary.id), timing, text, zone])
    id, now = hashlib.sha256(key.encode()).hexdigest()[:8], await store.now()
    schedule = build(draft, id, "agent", now, **_address(turn))
    if schedule.next_at is None:
        raise HoldfastError(f"{timing} is over; it is {now} now")
    if shortest_pause(schedule.times, now) < SHORTEST:
        raise HoldfastError(f"a schedule runs at most every {SHORTEST}")
    schedules = Schedules(store)
    own = [one for one in await schedules.all(turn.agent) if one.source == "agent" and one.next_at]
    here = [one for one in own if one.event["conversation"] == schedule.event["conversation"]]
    if id in [one.id for one in own]:
        return schedule
    if len(here) >= most or len(own) >= MOST_OF_AGENT:
        raise HoldfastError("there are too many schedules; remove one first")
    if await schedules.add(schedule):
        await note_change(store, f"agent:{turn.agent}", "schedule_added", schedule)
    return schedule


async def live_schedules(store: Store, turn: Turn) -> list[Schedule]:
    """Return the schedules that a turn's agent made in its conversation and that will run."""
    return [
        one
        for one in await Schedules(store).all(turn.agent)
        if one.source == "agent" and one.next_at and one.to == turn.conversation
    ]


def _address(turn: Turn) -> dict[str, Any]:
    """Return the payload fields that name the turn's sender and conversation."""
    if not turn.conversation:
        return {}
    return {
        "channel": turn.channel,
        "sender": turn.sender,
        "sender_id": turn.sender_id,
        "conversation": turn.conversation,
        **own_workspace(turn.event),
    }
