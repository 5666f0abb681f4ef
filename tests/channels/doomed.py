"""A harness on Slack that kills itself at a given point of a mention's way.

Run it with `python -m tests.channels.doomed URL HOME POINT`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient

from holdfast.agents.base import Reply
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.channels.slack import SlackChannel
from holdfast.settings import Settings

BEFORE_INSERT = "before the insert"
AFTER_INSERT = "after the insert"
AFTER_ACK = "after the ack"
WHILE_WORKING = "while the agent works"
BEFORE_POST = "before the post"
AFTER_POST = "between post and settle"
IN_BETWEEN = "between two parts"
BEFORE_SHARE = "before a file is shared"
AFTER_SHARE = "between sharing a file and settle"
FILE_POINTS = (BEFORE_SHARE, AFTER_SHARE)
POINTS = (
    BEFORE_INSERT,
    AFTER_INSERT,
    AFTER_ACK,
    WHILE_WORKING,
    BEFORE_POST,
    AFTER_POST,
    IN_BETWEEN,
)
NOWHERE = "nowhere"
PARTS = ["x" * 3000, "y" * 3000]

Call = Callable[..., Awaitable[Any]]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(call: Call) -> Call:
    async def doomed(*arguments: Any, **options: Any) -> Any:
        die()
        return await call(*arguments, **options)

    return doomed


def after(call: Call, nth: int = 1) -> Call:
    times = 0

    async def doomed(*arguments: Any, **options: Any) -> Any:
        nonlocal times
        times += 1
        result = await call(*arguments, **options)
        if times == nth:
            die()
        return result

    return doomed


MINES: dict[str, tuple[type, str, Callable[[Call], Call]]] = {
    BEFORE_INSERT: (AgentHarness, "receive", before),
    AFTER_INSERT: (AgentHarness, "receive", after),
    AFTER_ACK: (AsyncBaseSocketModeClient, "send_socket_mode_response", after),
    BEFORE_POST: (SlackChannel, "send_part", before),
    IN_BETWEEN: (SlackChannel, "send_part", after),
    AFTER_POST: (SlackChannel, "send_part", lambda call: after(call, nth=2)),
    BEFORE_SHARE: (SlackChannel, "send_part", before),
    AFTER_SHARE: (SlackChannel, "send_part", after),
}


def main(url: str, home: str, point: str) -> None:
    async def answer(turn: Turn) -> str | Reply:
        if point in FILE_POINTS:
            return Reply("", files=("a.txt",))
        if point == WHILE_WORKING:
            die()
        return "\n\n".join(PARTS)

    if point in MINES:
        owner, name, mine = MINES[point]
        setattr(owner, name, mine(getattr(owner, name)))
    settings = Settings(database=url, home=Path(home), retry_first=timedelta(milliseconds=10))
    app = AgentHarness(answer, settings=settings)
    asyncio.run(app.run(on_ready=lambda: print("ready", flush=True)))


if __name__ == "__main__":
    main(*sys.argv[1:])
