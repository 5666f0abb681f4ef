"""Agents for the pictures: their answers show what the chat page can show."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast import AgentHarness, Turn

PLAN = """The migration runs in **one transaction**, so a failure changes nothing.

| step | takes | locks |
|:-----|------:|:------|
| add the column | 4 ms | none |
| fill it in batches | 12 min | one row at a time |
| make it `not null` | 80 ms | the table, briefly |

- [x] rehearsed on a copy
- [x] old workers keep running
- [ ] announce the window

```python
async def fill(store: Store, batch: int = 1_000) -> int:
    # Small batches keep each lock short.
    return await store.execute("update agent.event set lane = agent where lane is null")
```

See the [notes on locks](https://www.postgresql.org/docs/current/explicit-locking.html) first.
"""
REVIEW = """Two remarks:

1. `fill` should report its progress, or nobody knows whether it hangs.
2. The last step needs a `lock_timeout`, otherwise it queues behind a long read.

The rest is fine. > I would ship it on Tuesday.
"""

app = AgentHarness(default="guide")


@app.agent("guide", name="Guide", description="Answers questions about this project")
async def guide(turn: Turn) -> str:
    """Answers with whatever Markdown can show."""
    return PLAN if "migrat" in turn.text.lower() else f"Here is what I know about {turn.text}."


async def read(path: str) -> str:
    await asyncio.sleep(0.4)
    return f"read {path}"


@app.agent("planner", name="Planner", description="Breaks work into steps and asks for a review")
async def planner(turn: Turn) -> str:
    """Breaks work into steps, and asks the reviewer."""
    await turn.step("read schema.sql", read, "schema.sql")
    await turn.step("measure the tables", read, "pg_class")
    return f"I drafted the plan and asked for a review. [@reviewer: please check: {turn.text}]"


@app.agent("reviewer", name="Reviewer", description="Looks for what can go wrong")
async def reviewer(turn: Turn) -> str:
    """Looks for what can go wrong."""
    await turn.step("read the plan", read, "plan.md")
    return REVIEW


@app.agent("deployer", name="Deployer", description="Ships a release once a person agrees")
async def deployer(turn: Turn) -> str:
    """Ships a release after a person has approved it."""
    await turn.step("build the image", read, "image")
    answer = await turn.signal(
        "approval",
        timedelta(days=1),
        prompt="The image is built and tested. Ship 0.8.0 to production?",
        options={"Ship it": "shipped", "Not today": "kept back"},
    )
    return f"Done: {answer}."


app.team("desk", name="Release desk", agents=["planner", "reviewer"], leader="planner")
