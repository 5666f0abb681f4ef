"""`holdfast dead`: list, show, retry and discard dead letters."""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.audit import actor
from holdfast.cli.history import filters, list_finished, print_finished, refuse_missing
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
from holdfast.cli.printing import ago, echo, event_fields, print_json
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.queue.event import FinishedEvent
    from holdfast.queue.journal import Step
    from holdfast.settings import Settings

MOST_NAMED = 100

dead = typer.Typer(
    help="Dead letters: list, show, retry, discard.", rich_markup_mode=None, add_completion=False
)


class Effect(StrEnum):
    """Whether a call that may have happened counts as done."""

    DONE = "done"
    NOT_DONE = "not-done"


Ids = Annotated[list[int] | None, typer.Argument(help="Ids of dead letters.")]
All = Annotated[
    bool, typer.Option("--all", help="All dead letters, or all that match the other options.")
]


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
    which = {"queue": queue, "error": error}
    dead = asyncio.run(list_finished(settings, which, agent, limit, before, dead_only=True))
    print_finished(dead, as_json, empty="there are no dead letters")


@dead.command("show")
def show_dead(
    id: Annotated[int, typer.Argument(help="Id of a dead letter.")],
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter in full."""
    letter, calls = asyncio.run(_read_dead(load_settings(config, database=database, home=home), id))
    if as_json:
        print_json({**event_fields(letter), **({"unknownCalls": calls} if calls else {})})
    else:
        echo(_page(letter, calls))


@dead.command("retry")
def retry_dead(
    ids: Ids = None,
    every: All = False,
    queue: Queue = None,
    agent: Agent = None,
    error: Error = None,
    assume: Annotated[
        Effect | None,
        typer.Option(help="For a call that may have happened: take it as done, or run it again."),
    ] = None,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Make dead letters live again, with their ids and all attempts."""
    which = _select(ids, every, queue, agent, error)
    settings = load_settings(config, database=database, home=home)
    retried, unknown = asyncio.run(_retry(settings, which, agent, assume))
    others = [id_ for id_ in ids or [] if id_ not in unknown]
    if others or not ids:
        _report("retried", retried, others, as_json)
    if unknown and ids:
        raise HoldfastError(_needs_assume(unknown))
    if unknown:
        echo(f"holdfast: {_needs_assume(unknown)}", err=True)


@dead.command("discard")
def discard_dead(
    ids: Ids = None,
    every: All = False,
    queue: Queue = None,
    agent: Agent = None,
    error: Error = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Delete payload and error of dead letters; ids and times stay, for deduplication."""
    which = _select(ids, every, queue, agent, error)
    settings = load_settings(config, database=database, home=home)
    if not ids and not yes and sys.stdin.isatty():
        typer.confirm(
            "Discard all of them? Their payloads and errors cannot be restored.",
            abort=True,
            err=True,
        )
    _report("discarded", asyncio.run(_discard(settings, which, agent)), ids or [], as_json)


def _select(
    ids: list[int] | None, every: bool, queue: str | None, agent: str | None, error: str | None
) -> dict[str, Any]:
    """Return the filter that the arguments describe; no argument must not mean all."""
    if not ids and not every and queue is None and agent is None and error is None:
        raise typer.BadParameter("name ids, --queue, --agent, --error or --all")
    if ids and every:
        raise typer.BadParameter("name either ids or --all")
    return {"ids": ids or None, "queue": queue, "error": error}


async def _discard(settings: Settings, which: dict[str, Any], agent: str | None) -> list[int]:
    async with open_existing(settings) as store:
        chosen = await filters(store, which, agent)
        return sorted([id_ for one in chosen for id_ in await store.discard(one, actor=actor())])


async def _retry(
    settings: Settings, which: dict[str, Any], agent: str | None, assume: Effect | None
) -> tuple[list[int], list[int]]:
    """Retry dead letters. Returns their ids, and those that cannot be retried without assume."""
    from holdfast.queue.journal import EFFECT_UNKNOWN

    retried: list[int] = []
    unknown: list[int] = []
    async with open_existing(settings) as store:
        for one in await filters(store, which, agent):
            retried += await store.retry(
                one, actor=actor(), assume=None if assume is None else assume.value
            )
            left = await store.dead(one, limit=max(MOST_NAMED, len(one.ids or ())))
            unknown += [letter.id for letter in left if letter.error_class == EFFECT_UNKNOWN]
    return sorted(retried), sorted(unknown)


def _needs_assume(ids: list[int]) -> str:
    named = ", ".join(map(str, ids))
    return (
        f"not retried, since a call may have happened: {named}; see `holdfast dead show ID`,"
        " then retry with --assume done or --assume not-done"
    )


def _page(letter: FinishedEvent, calls: list[Step]) -> str:
    """Describe a dead letter: message, error, payload, and the command that retries it."""
    import json

    from holdfast.queue.event import payload_to_show

    about = [f"  {name:<9} {value}" for name, value in _about(letter).items() if value]
    lines = [f"dead letter {letter.id}", *about]
    lines += [f"  {'call':<9} {one.key} with {one.arguments or 'no arguments'}" for one in calls]
    if letter.traceback:
        lines += ["", letter.traceback.rstrip()]
    payload = json.dumps(payload_to_show(letter), indent=2, ensure_ascii=False, default=str)
    return "\n".join([*lines, "", payload, "", _advice(letter, calls)])


def _about(letter: FinishedEvent) -> dict[str, str | None]:
    error, kind = letter.last_error or "", letter.error_class
    attempts = "1 attempt" if letter.attempts == 1 else f"{letter.attempts} attempts"
    return {
        "for": f"{letter.target or 'the default agent'} ({letter.queue})",
        "message": letter.message_id,
        "received": f"{ago(letter.created_at)}, {letter.created_at.isoformat(timespec='seconds')}",
        "ended": f"{letter.outcome} {ago(letter.finished_at)}, after {attempts}",
        "error": f"{kind}: {error}" if kind and not error.startswith(kind) else error,
        "worker": letter.holder,
    }


def _advice(letter: FinishedEvent, calls: list[Step]) -> str:
    command = f"holdfast dead retry {letter.id}"
    if not calls:
        return f"retry with `{command}`"
    return (
        "the call may have happened: look, then retry with"
        f" `{command} --assume done` or `--assume not-done`"
    )


async def _read_dead(settings: Settings, id_: int) -> tuple[FinishedEvent, list[Step]]:
    """Read a dead letter, and its calls of which nobody knows whether they happened."""
    from holdfast.cli.journal import unknown_calls
    from holdfast.queue.store import Filter

    async with open_existing(settings) as store:
        found = await store.dead(Filter(ids=[id_]))
        if not found:
            raise HoldfastError(f"there is no dead letter {id_}")
        return found[0], unknown_calls(await store.journal(id_))


def _report(verb: str, changed: list[int], asked: list[int], as_json: bool) -> None:
    """Print the ids that were changed, and refuse those that are not dead letters."""
    if as_json:
        print_json(changed)
    elif changed or not asked:
        echo(f"{verb} {len(changed)}{': ' + ' '.join(map(str, changed)) if changed else ''}")
    refuse_missing([id_ for id_ in asked if id_ not in changed], "dead letter")
