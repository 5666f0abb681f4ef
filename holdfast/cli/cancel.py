"""`holdfast cancel`: stop a running turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import Config, Database, Home, load_settings, open_existing
from holdfast.cli.printing import echo
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.settings import Settings


def cancel(
    id: Annotated[int, typer.Argument(help="Id of the event, as `send --json` prints it.")],
    database: Database = None,
    config: Config = None,
    home: Home = None,
) -> None:
    """Stop a running turn; its message becomes a dead letter that can be retried."""
    asyncio.run(_cancel(load_settings(config, database=database, home=home), id))
    echo(f"cancelled {id}; `holdfast dead retry {id}` runs it again")


async def _cancel(settings: Settings, id: int) -> None:
    async with open_existing(settings) as store:
        if not await store.cancel(id, "cancelled at the command line", actor=actor()):
            state = "it is waiting" if await store.live(id) else "there is no such live event"
            raise HoldfastError(f"event {id} is not running: {state}")
