"""A team: the leader delegates work to its members, who answer the person who asked."""

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
