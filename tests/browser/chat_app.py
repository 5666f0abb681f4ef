"""Agents for tests of the chat page that share one server: none of them waits for a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from holdfast import AgentHarness, Reply, Turn
from holdfast.agents.steps import note_usage

HOSTILE = "\n\n".join(
    [
        "<script>window.owned = 1</script><img src=x onerror='window.owned = 2'>",
        "[click](javascript:window.owned=3) [data](data:text/html,<script>window.owned=4</script>)",
        "![pixel](https://tracker.invalid/pixel.png) <https://tracker.invalid/auto>",
        "<iframe src='https://tracker.invalid/'></iframe><svg onload='window.owned = 5'></svg>",
        "<style>body { display: none }</style><form action='https://tracker.invalid'>x</form>",
        "```html\n<script>window.owned = 6</script>\n```",
        "| <b onclick='window.owned = 7'>a</b> | b |\n|---|---|"
        "\n| \u202egnp.exe | `</code><img src=x>` |",
        "<a href='//tracker.invalid' ping='https://tracker.invalid'>a</a>",
    ]
)
MARKDOWN = """# Title

Some **bold**, *italics*, ~~gone~~ and `code`, with a [link](https://example.org/page).

| name | size |
|:-----|-----:|
| one  | 1 |

- [x] done
- [ ] open

> quoted

```python
def answer() -> int:
    return 42
```
"""

app = AgentHarness(default="echo")
asked = 0


@app.agent("echo", name="Echo")
async def echo(turn: Turn) -> str:
    return f"you said {turn.text}"


@app.agent("writer", name="Writer")
async def writer(turn: Turn) -> str:
    return MARKDOWN


@app.agent("hostile", name="<img src=x onerror='window.owned = 8'>")
async def hostile(turn: Turn) -> str:
    return HOSTILE


@app.agent("counter", name="Counter")
async def counter(turn: Turn) -> str:
    """Answers with another number each time."""
    global asked
    asked += 1
    return f"answer number {asked} to {turn.text}"


@app.agent("filer", name="Filer")
async def filer(turn: Turn) -> Reply:
    """Tells what it got, and sends the first file back."""
    paths = await turn.files()
    got = ", ".join(f"{path.name} of {path.stat().st_size} bytes" for path in paths)
    return Reply(f"got {got}", files=[str(path) for path in paths[:1]])


@app.agent("clerk", name="Clerk")
async def clerk(turn: Turn) -> str:
    """Asks a person before it does anything."""
    options = {"Send it": "sent", "<b>Leave</b> it": "left"}
    decided = await turn.signal("approval", prompt=f"Send {turn.text}?", options=options)
    return f"decided: {decided}"


@app.agent("slow", name="Slow")
async def slow(turn: Turn) -> str:
    """Works until it is stopped, or for a minute."""
    await asyncio.sleep(60)
    return "at last"


@app.agent("blocks", name="Blocks")
async def blocks(turn: Turn) -> AsyncIterator[str]:
    """Writes a heading and a table, block by block."""
    for block in ("## Report\n\n", "| a | b |\n|---|---|\n| 1 | 2 |\n\n", "The *last* words."):
        yield block
        await asyncio.sleep(1.5)


async def look(name: str) -> str:
    note_usage(1_200, 0.0036)
    return name.upper()


@app.agent("lead", name="Lead")
async def lead(turn: Turn) -> str:
    await turn.step("read the plan", look, "plan")
    return f"I ask for help [@mate: {turn.text}]"


@app.agent("mate", name="Mate")
async def mate(turn: Turn) -> str:
    await turn.step("check the plan", look, "plan")
    return "I helped"


app.team("pair", name="Pair", agents=["lead", "mate"], leader="lead")
