"""The echo agent, which answers until you have written an agent of your own."""

from __future__ import annotations

from holdfast.agents.turn import Turn


async def echo(turn: Turn) -> str:
    return f"you said {turn.text}"
