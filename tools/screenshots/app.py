"""Agents for the pictures: their answers show what the chat page can show."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast import AgentHarness, Turn
from holdfast.agents.steps import note_usage

PLAN = """The migration runs in **one transaction**, so a failure changes nothing.

| step | takes | locks |
|:-----|------:|:------|
| add the column | 4 ms | none |
| fill it in batches | 12 min | one row at a time |
| make it `not null` | 80 ms | the table, briefly |

- [x] rehearsed on a copy
- [ ] announce the window

```python
async def fill(store: Store, batch: int = 1_000) -> int:
    # Small batches keep each lock short.
    return await store.execute(FILL_LANES, batch)
```
"""
REVIEW = """Two remarks:

1. `fill` should report its progress, or nobody knows whether it hangs.
2. The last step needs a `lock_timeout`, otherwise it queues behind a long read.

The rest is fine: I would ship it on Tuesday.
"""
ANSWERS = {
    "release notes": "The notes are in `docs/releases/0.8.md`: 14 entries, most on channels.",
    "incident": "The queue was paused for **11 minutes** while the disk filled up. Nothing was"
    " lost; 312 messages were answered afterwards, in order.",
    "outbox": "Slack limits us to one message a second in `#deploys`. It drains by itself.",
    "welcome": "Here is the French version, with the three links kept as they were.",
    "stand-up": "Three things are open: the lane column, the Matrix rooms, and the on-call plan.",
    "error budget": "98.6 % of the budget is left this month.",
}

app = AgentHarness(default="guide")


@app.agent("guide", name="Guide", description="Answers questions about this project")
async def guide(turn: Turn) -> str:
    """Answers with whatever Markdown can show."""
    text = turn.text.lower()
    if "migrate" in text:
        return PLAN
    return next((answer for word, answer in ANSWERS.items() if word in text), "Noted.")


async def read(path: str, tokens: int, cost: float) -> str:
    """Stand for a call of a model: it takes a moment, and costs something."""
    await asyncio.sleep(0.4)
    note_usage(tokens, cost)
    return f"read {path}"


@app.agent("planner", name="Planner", description="Breaks work into steps and asks for a review")
async def planner(turn: Turn) -> str:
    """Breaks work into steps, and asks the reviewer."""
    if "room" in turn.event:
        return "I take the batches, and report every 10,000 rows."
    await turn.step("read schema.sql", read, "schema.sql", 1_840, 0.0055)
    await turn.step("measure the tables", read, "pg_class", 620, 0.0019)
    return f"I drafted the plan and asked for a review. [@reviewer: {turn.text}]"


@app.agent("reviewer", name="Reviewer", description="Looks for what can go wrong")
async def reviewer(turn: Turn) -> str:
    """Looks for what can go wrong."""
    if "room" in turn.event:
        return "I review it **today**. Please add a `lock_timeout` to the last step first."
    await turn.step("read the plan", read, "plan.md", 2_310, 0.0069)
    return REVIEW


@app.agent("deployer", name="Deployer", description="Ships a release once a person agrees")
async def deployer(turn: Turn) -> str:
    """Ships a release after a person has approved it."""
    await turn.step("build the image", read, "image", 0, 0.0)
    answer = await turn.signal(
        "approval",
        timedelta(days=1),
        prompt="The image is built and tested. Ship 0.8.0 to production?",
        options={"Ship it": "shipped", "Not today": "kept back"},
    )
    return f"Done: {answer}."


app.team(
    "desk",
    name="Release desk",
    description="Plans a release and looks for what can go wrong",
    agents=["planner", "reviewer"],
    leader="planner",
)
