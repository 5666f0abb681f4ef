"""`holdfast tail` and `cancel`: what happens now, and a way to stop it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import AsJson, Config, Database, Home, load_settings, open_existing
from holdfast.cli.printing import echo, print_json, short
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store import Store

LOOK_EVERY = timedelta(milliseconds=250)
TEXTS = ("message", "response", "error", "toAgent", "process")
"""Fields of which a line shows the first."""

OfAgent = Annotated[str | None, typer.Option("--agent", help="Only what concerns this agent.")]


def tail(
    agent: OfAgent = None,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Print what happens to messages as it happens, until interrupted."""
    settings = load_settings(config, database=database, home=home)
    # The only way to end it is no failure.
    with suppress(KeyboardInterrupt):
        asyncio.run(_tail(settings, agent, as_json))


def cancel(
    id: Annotated[int, typer.Argument(help="Id of the event, as `status` and the API show it.")],
    database: Database = None,
    config: Config = None,
    home: Home = None,
) -> None:
    """Stop a turn that runs; its message becomes a dead letter that can be retried."""
    asyncio.run(_cancel(load_settings(config, database=database, home=home), id))
    echo(f"cancelled {id}; `holdfast dead retry {id}` brings it back")


async def _cancel(settings: Settings, id: int) -> None:
    async with open_existing(settings) as store:
        if not await store.cancel(id, "cancelled at the command line", actor=actor()):
            known = "it waits" if await store.live(id) else "there is no such live event"
            raise HoldfastError(f"no turn of event {id} runs now: {known}")


async def _tail(settings: Settings, agent: str | None, as_json: bool) -> None:
    from holdfast.activity.reporter import SETTING

    if not settings.activity:
        raise HoldfastError("nothing is recorded: the setting `activity` is off")
    async with open_existing(settings) as store:
        # Processes record what happens from the moment in which somebody can read it.
        await store.set_setting(SETTING, True)
        _, position = await store.activity_span()
        while True:
            position = await _print_new(store, position, agent, as_json)
            await asyncio.sleep(LOOK_EVERY.total_seconds())


async def _print_new(store: Store, position: int, agent: str | None, as_json: bool) -> int:
    """Print what was recorded from a position on. Returns the next position."""
    for happened in await store.activity(position):
        position = happened.position + 1
        for frame in happened.frames:
            if agent is None or agent in (
                frame.get("agent"),
                frame.get("fromAgent"),
                frame.get("toAgent"),
            ):
                print_json(frame, indent=None) if as_json else echo(_line(frame))
    return position


def _line(frame: dict[str, Any]) -> str:
    at = frame.get("timestamp")
    moment = datetime.now(UTC) if at is None else datetime.fromtimestamp(at / 1000, UTC)
    text = next((str(frame[name]) for name in TEXTS if frame.get(name)), "")
    parts = (frame.get("type"), frame.get("agent"), frame.get("messageId"), short(text))
    return " ".join(
        [moment.astimezone().strftime("%H:%M:%S"), *(str(part) for part in parts if part)]
    )
