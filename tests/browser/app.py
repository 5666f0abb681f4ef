"""Agents for tests of the page: some answer, one waits, one fails, and two work as a team."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from holdfast import AgentHarness, Dead, Turn
from holdfast.channels.base import Channel, Put
from holdfast.queue.event import Event

app = AgentHarness(default="echo")


@app.agent("echo")
async def echo(turn: Turn) -> str:
    return f"you said {turn.text}"


@app.agent("slow")
async def slow(turn: Turn) -> str:
    """Waits for a file, so that the test decides how long it takes."""
    while not Path("go").exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.02)
    return f"slowly: {turn.text}"


@app.agent("broken", max_attempts=1)
async def broken(turn: Turn) -> str | Dead:
    if turn.text == "raise":
        raise RuntimeError("the printer is on fire")
    if not Path("mended").exists():  # noqa: ASYNC240
        return Dead("the printer is on fire")
    return f"mended: {turn.text}"


@app.agent("lead")
async def lead(turn: Turn) -> str:
    return f"I ask for help [@mate: {turn.text}]"


@app.agent("mate")
async def mate(turn: Turn) -> str:
    """Waits for a file, so that the test sees the answer of the leader alone first."""
    while not Path("go").exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.02)
    return "I helped"


app.team("pair", name="Pair", agents=["lead", "mate"], leader="lead")


async def _exists(name: str) -> None:
    while not Path(name).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.02)


async def find_topic(text: str) -> str:
    return text.upper()


@app.agent("poet")
async def poet(turn: Turn) -> AsyncIterator[str]:
    """Writes a line, waits for the file `middle`, writes on, and waits for `end`."""
    turn.progress("reading 3 of 7 files")
    topic = await turn.step("find topic", find_topic, turn.text)
    yield f"Once 😀 there was `{topic}`"
    await _exists("middle")
    yield ", and it was good"
    await _exists("end")
    yield "."


@app.agent("cashier")
async def cashier(turn: Turn) -> str:
    """Charges a card whose terminal breaks down in the middle, until the file `mended` exists."""

    async def charge(amount: int) -> str:
        if not Path("mended").exists():  # noqa: ASYNC240
            raise ConnectionError("the terminal is silent")
        return "charged"

    result = await turn.step("charge card", charge, 5, effect="once")
    return f"paid: {result}"


@app.agent("hostile")
async def hostile(turn: Turn) -> Dead:
    """Fails with an error that would run as a script in a careless page."""
    return Dead(f'<img src=x onerror=alert("{turn.text[:10]}")> <script>alert(1)</script>')


@app.agent("clumsy")
async def clumsy(turn: Turn) -> str:
    """Stumbles at its first attempt, and then works."""
    if turn.attempt == 1:
        raise ValueError("stumbled over <b>the</b> cable")
    return "caught itself"


class Pager(Channel):
    """A channel whose platform is out of reach while the file `unplugged` exists."""

    name = "pager"

    @property
    def problems(self) -> Sequence[str]:
        return ["the <b>antenna</b> is unplugged"] if Path("unplugged").exists() else []

    async def run(self, put: Put) -> None:
        await asyncio.Event().wait()

    async def send(self, response: Event) -> None:
        """Take every response."""


app.add_channel(Pager())
