"""A team: the leader hands parts of the work to its members, whose answers go to the person who asked."""

from __future__ import annotations

from holdfast import AgentHarness, Turn

app = AgentHarness(default="lead")


@app.agent("lead", name="Lead")
async def lead(turn: Turn) -> str:
    return f"On it. [@coder: write {turn.text}] [@writer: describe {turn.text}]"


@app.agent("coder", name="Coder")
async def coder(turn: Turn) -> str:
    return f"coded: {turn.text}"


@app.agent("writer", name="Writer")
async def writer(turn: Turn) -> str:
    return f"described: {turn.text}"


app.team("dev", name="Developers", agents=["lead", "coder", "writer"], leader="lead")
