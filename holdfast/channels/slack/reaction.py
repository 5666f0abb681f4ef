"""The reaction on a message while an agent works on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.channels.background import Start
from holdfast.channels.base import NotNow
from holdfast.channels.slack.errors import Refusal
from holdfast.channels.slack.workspace import Workspace
from holdfast.message import Payload
from holdfast.telemetry import SLACK_STATUS_FAILED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

REMOVE_TRIES = 5


@asynccontextmanager
async def show_reaction(
    workspace: Workspace, payload: Payload, start: Start, *, again: bool
) -> AsyncIterator[None]:
    """Add the reaction after a while, remove it after the block. The work waits for neither."""
    access = workspace.access
    added: list[asyncio.Task[None]] = []

    def add() -> None:
        if task := start(_try(workspace, "reactions.add", where, 1)):
            added.append(task)

    where = {
        "channel": payload.get("channel"),
        "timestamp": payload.get("ts"),
        "name": access.status,
    }
    later = asyncio.get_running_loop().call_later(access.status_after.total_seconds(), add)
    try:
        yield
    finally:
        later.cancel()
        # A worker that died in an earlier attempt may have left its reaction.
        if added or again:
            start(_remove(workspace, where, added))


async def _remove(workspace: Workspace, where: Payload, added: list[asyncio.Task[None]]) -> None:
    if added:
        await asyncio.wait(added)
    await _try(workspace, "reactions.remove", where, REMOVE_TRIES)


async def _try(workspace: Workspace, method: str, where: Payload, tries: int) -> None:
    for nth in range(tries):
        try:
            await workspace.call(method, **where)
            return
        except NotNow as wait:
            if nth + 1 < tries:
                await asyncio.sleep(wait.delay.total_seconds())
        except Refusal as refusal:
            if refusal.code not in ("already_reacted", "no_reaction"):
                log.warning(Entry(SLACK_STATUS_FAILED, error=refusal))
            return
        except Exception as error:  # noqa: BLE001 - a reaction is not worth a turn
            log.warning(Entry(SLACK_STATUS_FAILED, error=error))
            return
