"""`holdfast dead`, `history` and `replay`: events that have ended, and what a person may do with them."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import (
    Agent,
    AsJson,
    Config,
    Database,
    Error,
    Home,
    Limit,
    Queue,
    load_settings,
    open_existing,
)
from holdfast.cli.printing import ago, echo, is_wide, print_json, short, show
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.queue.event import FinishedEvent
    from holdfast.queue.store import Filter
    from holdfast.settings import Settings
    from holdfast.store import Store

dead = typer.Typer(
    help="Dead letters: list, show, retry, discard.", rich_markup_mode=None, add_completion=False
)

Ids = Annotated[list[int] | None, typer.Argument(help="Ids of dead letters.")]
All = Annotated[
    bool, typer.Option("--all", help="All dead letters, or all that the other options leave.")
]
Before = Annotated[int | None, typer.Option(help="Only older ones: ids less than this.")]

NARROW = ("id", "ended", "for", "outcome", "error or text")
OUTCOMES = ("completed", "dead", "expired", "cancelled", "discarded")
COLUMNS = ("id", "finished", "queue", "for", "outcome", "attempts", "message id", "text", "error")


@dead.command("list")
def list_dead(
    queue: Queue = None,
    agent: Agent = None,
    error: Error = None,
    limit: Limit = 20,
    before: Before = None,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first."""
    settings = load_settings(config, database=database, home=home)
    found = asyncio.run(
        _list(settings, {"queue": queue, "error": error}, agent, limit, before, dead_only=True)
    )
    _list_out(found, as_json, empty="there are no dead letters")


@dead.command("show")
def show_dead(
    id: Annotated[int, typer.Argument(help="Id of a dead letter.")],
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter in full."""
    letter = asyncio.run(_show(load_settings(config, database=database, home=home), id))
    if as_json:
        print_json(letter)
        return
    echo(_page(letter))


@dead.command("retry")
def retry_dead(
    ids: Ids = None,
    every: All = False,
    queue: Queue = None,
    agent: Agent = None,
    error: Error = None,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Make dead letters live again, with their ids and full attempts."""
    chosen = _chosen(ids, every, queue, agent, error)
    settings = load_settings(config, database=database, home=home)
    _report("retried", asyncio.run(_change(settings, "retry", chosen, agent)), ids, as_json)


@dead.command("discard")
def discard_dead(
    ids: Ids = None,
    every: All = False,
    queue: Queue = None,
    agent: Agent = None,
    error: Error = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before several are discarded.")
    ] = False,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Empty dead letters: payload and error go, ids and times stay. At a terminal it asks before it takes several."""
    chosen = _chosen(ids, every, queue, agent, error)
    settings = load_settings(config, database=database, home=home)
    if not ids and not yes and sys.stdin.isatty():
        typer.confirm(
            "Discard all of them? Their payloads and errors cannot be brought back.",
            abort=True,
            err=True,
        )
    _report("discarded", asyncio.run(_change(settings, "discard", chosen, agent)), ids, as_json)


def history(
    queue: Queue = None,
    agent: Agent = None,
    outcome: Annotated[
        list[str] | None,
        typer.Option(
            help="Only with this outcome: completed, dead, expired, cancelled, discarded."
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
    """List finished events, newest first."""
    settings = load_settings(config, database=database, home=home)
    if unknown := [one for one in outcome or () if one not in OUTCOMES]:
        raise typer.BadParameter(
            f"there is no outcome {unknown[0]!r}; known are: {', '.join(OUTCOMES)}"
        )
    which = {"queue": queue, "error": error, "outcomes": outcome or None}
    found = asyncio.run(_list(settings, which, agent, limit, before, dead_only=False))
    _list_out(found, as_json, empty="nothing has finished yet")


def replay(
    ids: Annotated[list[int], typer.Argument(help="Ids of finished events.")],
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Put finished events in once more, as new ones."""
    made = asyncio.run(
        _replay(load_settings(config, database=database, home=home), list(dict.fromkeys(ids)))
    )
    if as_json:
        print_json([{"id": old, "newId": new} for old, new in made.items() if new is not None])
    else:
        for old, new in made.items():
            if new is not None:
                echo(f"event {old} again as event {new}")
    _refuse_missing(
        [old for old, new in made.items() if new is None], "finished event (or it was discarded)"
    )


def _chosen(
    ids: list[int] | None, every: bool, queue: str | None, agent: str | None, error: str | None
) -> dict[str, Any]:
    """What was named; naming nothing must not mean everything."""
    if not ids and not every and queue is None and agent is None and error is None:
        raise typer.BadParameter("name ids, --queue, --agent, --error or --all")
    if ids and every:
        raise typer.BadParameter("name either ids or --all")
    return {"ids": ids or None, "queue": queue, "error": error}


async def _change(
    settings: Settings, verb: str, which: dict[str, Any], agent: str | None
) -> list[int]:
    async with open_existing(settings) as store:
        change = store.retry if verb == "retry" else store.discard
        return sorted(
            [
                id_
                for one in await _filters(store, which, agent)
                for id_ in await change(one, actor=actor())
            ]
        )


async def _list(
    settings: Settings,
    which: dict[str, Any],
    agent: str | None,
    limit: int,
    before: int | None,
    *,
    dead_only: bool,
) -> list[FinishedEvent]:
    from holdfast.queue.pages import PAGE_BYTES

    async with open_existing(settings) as store:
        look = store.dead if dead_only else store.finished
        pages = [
            await look(one, limit=limit, before_id=before, most_bytes=PAGE_BYTES)
            for one in await _filters(store, which, agent)
        ]
    # A page that ended early says nothing about what is older than its last row.
    oldest = max((page[-1].id for page in pages if page and page.has_more), default=0)
    found = [event for page in pages for event in page if event.id >= oldest]
    shown = sorted(found, key=lambda event: event.id, reverse=True)[:limit]
    if oldest and len(shown) < limit:
        echo(f"there may be more, these are large: --before {oldest} goes on", err=True)
    return shown


async def _filters(store: Store, which: dict[str, Any], agent: str | None) -> list[Filter]:
    """One filter, or two for the default agent, whose messages may name nobody."""
    from holdfast.queue.event import INBOX
    from holdfast.queue.store import Filter
    from holdfast.routing.directory import read

    await _refuse_unknown(store, which["queue"], agent)
    if agent is None:
        return [Filter(**which)]
    which = which | {"queue": which["queue"] or INBOX}
    routing = (await read(store)).routing
    names = [agent, ""] if agent == routing.default and which["queue"] == INBOX else [agent]
    return [Filter(**which, target=name) for name in names]


async def _refuse_unknown(store: Store, queue: str | None, agent: str | None) -> None:
    """A mistyped queue or agent must not look like an empty list."""
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


def _page(letter: FinishedEvent) -> str:
    """One dead letter as a page: what it was, why it died, its payload, and how to bring it back."""
    import json

    about = {
        "for": f"{letter.target or 'the default agent'} ({letter.queue})",
        "message": letter.message_id,
        "received": f"{ago(letter.created_at)}, {letter.created_at.isoformat(timespec='seconds')}",
        "ended": f"{letter.outcome} {ago(letter.finished_at)}, after {letter.attempts} attempts",
        "error": f"{letter.error_class}: {letter.last_error}"
        if letter.error_class
        else letter.last_error,
        "worker": letter.holder,
    }
    lines = [
        f"dead letter {letter.id}",
        *(f"  {name:<9} {value}" for name, value in about.items() if value),
    ]
    if letter.traceback:
        lines += ["", letter.traceback.rstrip()]
    payload = json.dumps(letter.event, indent=2, ensure_ascii=False, default=str)
    return "\n".join([*lines, "", payload, "", f"retry with `holdfast dead retry {letter.id}`"])


async def _show(settings: Settings, id_: int) -> FinishedEvent:
    from holdfast.queue.store import Filter

    async with open_existing(settings) as store:
        found = await store.dead(Filter(ids=[id_]))
    if not found:
        raise HoldfastError(f"there is no dead letter {id_}")
    return found[0]


async def _replay(settings: Settings, ids: list[int]) -> dict[int, int | None]:
    async with open_existing(settings) as store:
        # One by one, so that it is known which of them became which.
        return {id_: next(iter(await store.replay([id_], actor=actor())), None) for id_ in ids}


def _list_out(found: list[FinishedEvent], as_json: bool, *, empty: str) -> None:
    """Print a list, at 80 columns with what matters most."""
    if as_json or is_wide():
        show(found, as_json, COLUMNS, _line, empty=empty)
    else:
        show(found, as_json, NARROW, _narrow_line, empty=empty)


def _narrow_line(event: FinishedEvent) -> tuple[object, ...]:
    from holdfast.message import written_of

    said = event.last_error or written_of(event.event)
    return event.id, event.finished_at, event.target or event.queue, event.outcome, short(said)


def _line(event: FinishedEvent) -> tuple[object, ...]:
    from holdfast.message import written_of

    ended = (
        event.id,
        event.finished_at,
        event.queue,
        event.target,
        event.outcome,
        event.attempts,
        event.message_id,
    )
    return *ended, short(written_of(event.event)), short(event.last_error or "")


def _report(verb: str, changed: list[int], asked: list[int] | None, as_json: bool) -> None:
    if as_json:
        print_json(changed)
    elif changed or not asked:
        echo(f"{verb} {len(changed)}{': ' + ' '.join(map(str, changed)) if changed else ''}")
    _refuse_missing([id_ for id_ in asked or [] if id_ not in changed], "dead letter")


def _refuse_missing(missing: list[int], what: str) -> None:
    if missing:
        raise HoldfastError(f"there is no {what} {', '.join(map(str, missing))}")
