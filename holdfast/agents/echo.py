"""The agent that answers before you have written one."""

from __future__ import annotations

from holdfast.agents.turn import Turn


async def echo(turn: Turn) -> str:
    return f"you said {turn.text}"
