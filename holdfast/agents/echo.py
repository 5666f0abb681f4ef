"""The agent that answers before you have written one."""

from __future__ import annotations

from holdfast.queue.event import Turn


async def echo(turn: Turn) -> str:
    return f"you said {turn.text}"
