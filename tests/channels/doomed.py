"""A harness on one channel that kills itself at a given point of a message's way.

Run it with `python -m tests.channels.doomed CHANNEL URL HOME POINT`."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast.agents.base import Reply
from holdfast.agents.turn import Turn
from holdfast.api.server import serve_http
from holdfast.app import AgentHarness
from holdfast.channels.watermark import Watermarks
from holdfast.settings import Settings

BEFORE_INSERT = "before the insert"
AFTER_INSERT = "after the insert"
AFTER_ACK = "after the ack"
AFTER_POSITION = "after a position is stored"
WHILE_WORKING = "while the agent works"
BEFORE_POST = "before the post"
AFTER_POST = "between post and settle"
IN_BETWEEN = "between two parts"
BEFORE_SHARE = "before a file is shared"
AFTER_SHARE = "between sharing a file and settle"
FILE_POINTS = (BEFORE_SHARE, AFTER_SHARE)
NOWHERE = "nowhere"

CLASSES = {
    "discord": "DiscordChannel",
    "email": "EmailChannel",
    "matrix": "MatrixChannel",
    "slack": "SlackChannel",
    "telegram": "TelegramChannel",
    "whatsapp": "WhatsAppChannel",
}
LENGTHS = {"discord": 1500, "matrix": 6000}
"""Characters of a part, where 3,000 are not more than half of the platform's limit and less than
all of it."""
WITH_WEBHOOK = ("whatsapp",)

Call = Callable[..., Awaitable[Any]]
Mine = tuple[type, str, Callable[[Call], Call]]
"""A method of a class, and how it kills the process."""


def module_of(channel: str) -> str:
    return f"holdfast.channels.{channel}"


def parts_of(channel: str) -> list[str]:
    """Return the two parts in which a harness answers."""
    return [sign * LENGTHS.get(channel, 3000) for sign in "xy"]


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


def mines(channel: str) -> dict[str, Mine]:
    """Return the points that lie in methods. E-mail sends an answer in one part."""
    # Imported by name: the library of one platform takes seconds.
    owner = getattr(importlib.import_module(module_of(channel)), CLASSES[channel])
    last = 1 if channel == "email" else 2
    return {
        BEFORE_INSERT: (AgentHarness, "receive", before),
        AFTER_INSERT: (AgentHarness, "receive", after),
        AFTER_ACK: (_socket_client(channel), "send_socket_mode_response", after),
        # The first write is the position at the start. The second one covers the invitation.
        AFTER_POSITION: (Watermarks, "write", lambda call: after(call, nth=2)),
        BEFORE_POST: (owner, "send_part", before),
        IN_BETWEEN: (owner, "send_part", after),
        AFTER_POST: (owner, "send_part", lambda call: after(call, nth=last)),
        BEFORE_SHARE: (owner, "send_part", before),
        AFTER_SHARE: (owner, "send_part", after),
    }


def _socket_client(channel: str) -> type:
    """Return the class that acknowledges messages of Slack; none has it elsewhere."""
    if channel != "slack":
        return object
    from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient

    return AsyncBaseSocketModeClient


def main(channel: str, url: str, home: str, point: str = NOWHERE) -> None:
    async def answer(turn: Turn) -> str | Reply:
        if point in FILE_POINTS:
            return Reply("", files=("a.txt",))
        if point == WHILE_WORKING:
            die()
        if turn.text.startswith("echo "):
            return turn.text.removeprefix("echo ")
        return "\n\n".join(parts_of(channel))

    if point in mines(channel):
        owner, name, lay = mines(channel)[point]
        setattr(owner, name, lay(getattr(owner, name)))
    if channel == "discord":
        use_quick_access()
    settings = Settings(
        database=url, home=Path(home), retry_first=timedelta(milliseconds=10), pairing="open"
    )
    asyncio.run(run(AgentHarness(answer, settings=settings), serves=channel in WITH_WEBHOOK))


def use_quick_access() -> None:
    """Do not wait for further servers of Discord, as the fixture of its tests does."""
    from holdfast.channels.discord import factory
    from tests.channels.discord_fixtures import quick_access

    setattr(factory, "access_of", quick_access)  # noqa: B010


async def run(app: AgentHarness, *, serves: bool = False) -> None:
    """Run a harness that says when it is ready, and the port at which it takes webhooks."""
    port = 0

    @asynccontextmanager
    async def serve(app: AgentHarness) -> AsyncIterator[None]:
        nonlocal port
        if not serves:
            yield
            return
        async with serve_http(app, "127.0.0.1", 0) as port:
            yield

    await app.run(serve=serve, on_ready=lambda: print("ready", port, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
