"""Apps for proofs: a sound one, and three with a fault each."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

from holdfast import AgentHarness, Turn

sound = AgentHarness(default="careful")
forgetful = AgentHarness(default="marker")
eager = AgentHarness(default="eager")
unstable = AgentHarness(default="unstable")
hasty = AgentHarness(default="hasty")


def look_up(text: str) -> str:
    return text.upper()


@sound.agent("careful")
async def careful(turn: Turn) -> str:
    found = await turn.step("look up", look_up, turn.text)
    return f"found {found}"


@forgetful.agent("marker")
def mark_first(turn: Turn) -> str | None:
    """Mark a message as answered before it is, and skip messages that are marked."""
    moment = turn.events[0].created_at.timestamp()
    mark = Path(tempfile.gettempdir(), f"{turn.message_id}-{moment}")
    if mark.exists():
        return None
    mark.touch()
    return f"you said {turn.text}"


@eager.agent("eager")
async def put_at_once(turn: Turn) -> str:
    """Put another message at once, not with the end of the turn."""
    if not turn.text.startswith("again"):
        await eager.put(f"again: {turn.text}", channel="api", sender="eager")
    return "done"


@unstable.agent("unstable")
async def rename_steps(turn: Turn) -> str:
    """Give the step another name in every attempt."""
    return str(await turn.step(f"look up {uuid.uuid4()}", look_up, turn.text))


@hasty.agent("hasty", lane="none")
async def answer_at_once(turn: Turn) -> str:
    """Answer the messages of one person side by side."""
    return f"you said {turn.text}"
