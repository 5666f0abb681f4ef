"""`holdfast history` and `replay`: finished events, and how to run them again."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import (
    Agent,
    AsJson,
    Before,
    Config,
    Database,
    Error,
    Home,
    Limit,
    Queue,
    load_settings,
    open_existing,
)
from holdfast.cli.printing import echo, is_wide, print_json, print_rows, short
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.queue.event import FinishedEvent
    from holdfast.queue.pages import Page
    from holdfast.queue.store import Filter
    from holdfast.settings import Settings
    from holdfast.store import Store

OUTCOMES = ("completed", "dead", "expired", "cancelled", "discarded")
COLUMNS = ("id", "finished", "queue", "for", "outcome", "attempts", "message id", "text", "error")
_CELLS = attrgetter("id", "finished_at", "queue", "target", "outcome", "attempts", "message_id")
NARROW_COLUMNS = ("id", "ended", "for", "outcome", "error or text")


def history(
    id: Annotated[
        str | None,
        typer.Argument(help="Id of one event, or of its message: show its steps and its text."),
    ] = None,
    queue: Queue = None,
    agent: Agent = None,
    outcome: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this outcome: completed, dead, expired, cancelled, discarded;"
            " may be repeated."
        ),
    ] = None,
    error: Error = None,
    limit: Limit = 20,
    before: Before = None,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """List finished events, newest first, or show the steps of one event."""
    settings = load_settings(config, database=database, home=home)
    if id is not None:
        asyncio.run(_show_journal(settings, id, as_json))
        return
    if unknown := [one for one in outcome or () if one not in OUTCOMES]:
        raise typer.BadParameter(
            f"there is no outcome {unknown[0]!r}; known are: {', '.join(OUTCOMES)}"
        )
    which = {"queue": queue, "error": error, "outcomes": outcome or None}
    events = asyncio.run(list_finished(settings, which, agent, limit, before, dead_only=False))
    print_finished(events, as_json, empty="nothing has finished yet")


async def _show_journal(settings: Settings, id: str, as_json: bool) -> None:
    from holdfast.cli.journal import print_journal, read_event
    from holdfast.cli.stop import find_event_id

    async with open_existing(settings) as store:
        event = await read_event(store, await find_event_id(store, id))
        print_journal(event, await store.journal(event.id), as_json)


def replay(
    ids: Annotated[list[int], typer.Argument(help="Ids of finished events.")],
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Put copies of finished events into their queues, as new events."""
    settings = load_settings(config, database=database, home=home)
    new_ids = asyncio.run(_replay(settings, list(dict.fromkeys(ids))))
    copied = {old: new for old, new in new_ids.items() if new is not None}
    if as_json:
        print_json([{"id": old, "newId": new} for old, new in copied.items()])
    else:
        for old, new in copied.items():
            echo(f"event {old} again as event {new}")
    missing = [old for old in new_ids if old not in copied]
    refuse_missing(missing, "finished event (or it was discarded)")


async def _replay(settings: Settings, ids: list[int]) -> dict[int, int | None]:
    """Replay events one by one, and return the new id of each; None if there is no such event."""
    async with open_existing(settings) as store:
        return {id_: next(iter(await store.replay([id_], actor=actor())), None) for id_ in ids}


async def list_finished(
    settings: Settings,
    which: dict[str, Any],
    agent: str | None,
    limit: int,
    before: int | None,
    *,
    dead_only: bool,
) -> list[FinishedEvent]:
    """Read a page of finished events or dead letters, newest first."""
    from holdfast.queue.pages import PAGE_BYTES

    async with open_existing(settings) as store:
        read = store.dead if dead_only else store.finished
        pages = [
            await read(one, limit=limit, before_id=before, most_bytes=PAGE_BYTES)
            for one in await filters(store, which, agent)
        ]
    return _merge_pages(pages, limit)


def _merge_pages(pages: list[Page[FinishedEvent]], limit: int) -> list[FinishedEvent]:
    """Merge pages, newest first, as far as all of them are complete."""
    # A page cut short by its size says nothing about rows older than its last one.
    oldest = max((page[-1].id for page in pages if page and page.has_more), default=0)
    complete = [event for page in pages for event in page if event.id >= oldest]
    events = sorted(complete, key=lambda event: event.id, reverse=True)[:limit]
    if oldest and len(events) < limit:
        echo(f"there may be more, these are large: continue with --before {oldest}", err=True)
    return events


async def filters(store: Store, which: dict[str, Any], agent: str | None) -> list[Filter]:
    """Return one filter, or two for the default agent: its messages may name no agent.

    Refuses an unknown queue or agent."""
    from holdfast.queue.event import INBOX
    from holdfast.queue.store import Filter
    from holdfast.routing.directory import read

    await refuse_unknown(store, which["queue"], agent)
    if agent is None:
        return [Filter(**which)]
    which = which | {"queue": which["queue"] or INBOX}
    routing = (await read(store)).routing
    names = [agent, ""] if agent == routing.default and which["queue"] == INBOX else [agent]
    return [Filter(**which, target=name) for name in names]


async def refuse_unknown(store: Store, queue: str | None, agent: str | None) -> None:
    """Refuse a mistyped queue or agent, which would look like an empty list."""
    from holdfast.queue.event import INBOX, MEMORY, OUTBOX
    from holdfast.queue.store import Filter
    from holdfast.routing.directory import read

    counts = await store.counts()
    queues = dict.fromkeys([INBOX, OUTBOX, MEMORY, *sorted(count.queue for count in counts)])
    if (
        queue is not None
        and queue not in queues
        and not await store.finished(Filter(queue=queue), limit=1)
    ):
        raise HoldfastError(f"there is no queue {queue!r}; known are: {', '.join(queues)}")
    if agent is None:
        return
    known = {
        *(await read(store)).routing.lanes,
        *(count.target for count in counts if count.target),
    }
    if agent not in known and not await store.finished(Filter(target=agent), limit=1):
        raise HoldfastError(
            f"there is no agent {agent!r}; known are: {', '.join(sorted(known)) or 'none'}"
        )


def print_finished(events: list[FinishedEvent], as_json: bool, *, empty: str) -> None:
    """Print finished events; at 80 columns with fewer columns."""
    if as_json or is_wide():
        print_rows(events, as_json, COLUMNS, _row, empty=empty)
    else:
        print_rows(events, as_json, NARROW_COLUMNS, _narrow_row, empty=empty)


def _narrow_row(event: FinishedEvent) -> tuple[object, ...]:
    from holdfast.message import written_of
    from holdfast.queue.event import payload_to_show

    text = event.last_error or written_of(payload_to_show(event))
    return event.id, event.finished_at, event.target or event.queue, event.outcome, short(text)


def _row(event: FinishedEvent) -> tuple[object, ...]:
    from holdfast.message import written_of
    from holdfast.queue.event import payload_to_show

    message = short(written_of(payload_to_show(event)))
    return (*_CELLS(event), message, short(event.last_error or ""))


def refuse_missing(missing: list[int], kind: str) -> None:
    """Raise an error that names the ids that were not found, if any."""
    if missing:
        raise HoldfastError(f"there is no {kind} {', '.join(map(str, missing))}")
