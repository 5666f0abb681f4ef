"""`holdfast tail`: print activity as it happens."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.history import refuse_unknown
from holdfast.cli.options import AsJson, Config, Database, Home, load_settings, open_existing
from holdfast.cli.printing import echo, print_json, short
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store import Store

POLL_INTERVAL = timedelta(milliseconds=250)
TEXT_FIELDS = ("message", "response", "error", "text", "key", "toAgent", "process")
"""Fields of a frame that hold text; a line shows the first one that is set."""

OfAgent = Annotated[str | None, typer.Option("--agent", help="Only frames of this agent.")]


def tail(
    agent: OfAgent = None,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Print the activity of all processes as it happens, until interrupted."""
    settings = load_settings(config, database=database, home=home)
    # Ctrl-C is the way to end it.
    with suppress(KeyboardInterrupt):
        asyncio.run(_tail(settings, agent, as_json))


async def _tail(settings: Settings, agent: str | None, as_json: bool) -> None:
    from holdfast.activity.reporter import SETTING

    if not settings.activity:
        raise HoldfastError("no activity is recorded: the setting `activity` is off")
    async with open_existing(settings) as store:
        await _warn_of_unknown(store, agent)
        # Processes record activity only once somebody reads it.
        await store.set_setting(SETTING, True)
        _, position = await store.activity_span()
        while True:
            position = await _print_new(store, position, agent, as_json)
            await asyncio.sleep(POLL_INTERVAL.total_seconds())


async def _warn_of_unknown(store: Store, agent: str | None) -> None:
    """Say that nothing is to be seen of an agent, which a process may still bring."""
    try:
        await refuse_unknown(store, None, agent)
    except HoldfastError as error:
        echo(f"holdfast: {error}", err=True)


async def _print_new(store: Store, position: int, agent: str | None, as_json: bool) -> int:
    """Print the frames from a position on. Returns the next position."""
    for record in await store.activity(position):
        position = record.position + 1
        for frame in record.frames:
            if agent is None or agent in (
                frame.get("agent"),
                frame.get("fromAgent"),
                frame.get("toAgent"),
            ):
                print_json(frame, indent=None) if as_json else echo(_line(frame))
    return position


def _line(frame: dict[str, Any]) -> str:
    """Format a frame: time, type, agent, message id and text."""
    at = frame.get("timestamp")
    moment = datetime.now(UTC) if at is None else datetime.fromtimestamp(at / 1000, UTC)
    text = next((str(frame[name]) for name in TEXT_FIELDS if frame.get(name)), "")
    parts = (frame.get("type"), frame.get("agent"), frame.get("messageId"), short(text))
    return " ".join(
        [moment.astimezone().strftime("%H:%M:%S"), *(str(part) for part in parts if part)]
    )
