"""The agent of the demonstration: it writes a report through steps that stand for slow tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from holdfast import AgentHarness, Turn

TOOL_SECONDS = 1.5
WORD_SECONDS = 0.03
CHAPTERS = {
    "tides": "The harbour falls dry twice a day. The tables give high water at 04:12 and 16:37, and"
    " a ship of three metres' draught may pass the bar for two hours around each of them.",
    "wind": "The stations along the coast agree: south-west, force five, backing south by night."
    " Nobody expects a gale before Thursday.",
    "traffic": "Four ferries, nine trawlers and one tanker have announced themselves. The tanker"
    " needs both tugs, so nothing else can berth between 15:00 and 17:00.",
    "lights": "All lights burn. The bell buoy at the northern shoal is off its position by forty"
    " metres; a notice to mariners went out this morning.",
    "crew": "The night watch is complete. One pilot is ill, and the second has taken over both of"
    " his ships.",
    "stores": "Diesel lasts for eleven days, drinking water for six. The supply boat comes on"
    " Wednesday if the wind allows it.",
}

app = AgentHarness(default="harbour")


@app.agent("harbour")
async def harbour(turn: Turn) -> AsyncIterator[str]:
    """Write the report, chapter by chapter."""
    yield "Here is the report of the harbour.\n\n"
    for chapter in CHAPTERS:
        facts = await turn.step(f"read {chapter}", read, chapter)
        yield f"{chapter.capitalize()}: "
        for word in facts.split(" "):
            yield f"{word} "
            await asyncio.sleep(WORD_SECONDS)
        yield "\n\n"
    signature = await turn.step("sign", sign)
    yield f"Signed: {signature}"


async def read(chapter: str) -> str:
    """Take the time of a slow tool, and return what it found."""
    await asyncio.sleep(TOOL_SECONDS)
    return CHAPTERS[chapter]


async def sign() -> str:
    """Return the signature, after a while."""
    await asyncio.sleep(TOOL_SECONDS)
    return "the harbour office"
