"""Apps of measured worker processes: `holdfast work --app bench.apps:…`."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator

from bench.workload import TARGET
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness

PING = "ping"


async def do_nothing(turn: Turn) -> None:
    """Do nothing, so that the measured time is our own."""


async def note_start(turn: Turn) -> None:
    """Append the start time to the file that the event names, as one line in one write."""
    note = {"id": turn.primary.id, "started_at": time.time()}
    file = os.open(turn.event["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, json.dumps(note).encode() + b"\n")
    os.close(file)


async def hang_at_first(turn: Turn) -> None:
    """Hang in the first attempt, and note the start of each."""
    await note_start(turn)
    if len(turn.primary.claimed) == 1:
        await asyncio.Event().wait()


noop = AgentHarness(do_nothing, default=TARGET)

pinged = AgentHarness(do_nothing, default=TARGET)
pinged.add(PING, note_start)

pings = AgentHarness(note_start, default=PING)

stuck = AgentHarness(hang_at_first, default=PING)


WORDS = [f"word {nth} " for nth in range(20)]
LAST_WORD = WORDS[-1].strip()


async def write_words(turn: Turn) -> AsyncIterator[str]:
    """Write twenty words within half a second, as a quick model does."""
    for word in WORDS:
        yield word
        await asyncio.sleep(0.025)


streaming = AgentHarness(write_words, default="writer")
