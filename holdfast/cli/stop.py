"""`holdfast stop`: end a message that runs or waits."""

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
    from holdfast.store import Store


def stop(
    id: Annotated[str, typer.Argument(help="Id of the message, or of its event.")],
    database: Database = None,
    config: Config = None,
    home: Home = None,
) -> None:
    """Stop a message; it becomes a dead letter that keeps its text and can be retried."""
    event_id = asyncio.run(_stop(load_settings(config, database=database, home=home), id))
    echo(f"stopped {event_id}; `holdfast dead retry {event_id}` runs it again")


async def _stop(settings: Settings, id: str) -> int:
    async with open_existing(settings) as store:
        event_id = await find_event_id(store, id)
        reason = "at the command line"
        if not await store.cancel(event_id, reason, actor=actor(), leased_only=False):
            raise HoldfastError(f"{id} neither runs nor waits: there is no such live event")
        return event_id


async def find_event_id(store: Store, id: str) -> int:
    """Return the id of an event, given as a number or by the id of its message."""
    from holdfast.store.chain import find_message

    if id.isascii() and id.isdigit():
        return int(id)
    message = await find_message(store, id)
    if message is None:
        raise HoldfastError(f"there is no message {id}")
    return message.id
