"""Data for pictures of the console: a week of history, dead letters, memory, people who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.memory.observation import Observation
from holdfast.store import open_store
from holdfast.store.memory import open_observations
from holdfast.store.pairing import open_pairings, request_pairing
from holdfast.testing.history import GeneratedHistory, fill_history

Call = Callable[[str, dict[str, Any]], Any]

OBSERVATIONS = {
    "slack:id:ada": (
        "Drinks green tea, no coffee after noon",
        "Works on the payment gateway, on call every third week",
        "Prefers short answers with a link",
    ),
    "web:id:grace": ("Writes compilers", "Lives in New York"),
    "email:id:mira@example.org": ("Signs off releases on Thursdays",),
}
SCHEDULES = (
    ("0 9 * * mon-fri", "Prepare the stand-up", "planner"),
    ("every 30 min", "Look at the error budget", "guide"),
)


def fill(url: str) -> None:
    """Write a week of history, with a busy last hour. The server must not run yet."""
    now = datetime.now(UTC)
    week, hour = timedelta(days=7), timedelta(hours=1)
    fill_history(url, GeneratedHistory(rows=20_000, until=now - hour, over=week))
    fill_history(url, GeneratedHistory(rows=1_500, until=now, over=hour, with_keys=False))
    asyncio.run(_remember(url))


async def _remember(url: str) -> None:
    async with open_store(url) as store:
        for subject, contents in OBSERVATIONS.items():
            for content in contents:
                observation = Observation(
                    workspace_id="default",
                    subject_type="USER",
                    subject_id=subject,
                    content=content,
                )
                await open_observations(store).save(observation)
        await request_pairing(open_pairings(store), "telegram", "4711", "Zoë")


def operate(call: Call) -> None:
    """Do what operators do: tokens, schedules, and a line in a room."""
    call("/api/tokens", {"name": "ci", "role": "send", "agents": ["planner"], "expires": "30d"})
    call("/api/tokens", {"name": "dashboard", "role": "read"})
    for timing, message, agent in SCHEDULES:
        call("/api/schedules", {"timing": timing, "message": message, "agent": agent})
    call("/api/chatroom/desk", {"message": "Who reviews the plan for the lane column?"})
