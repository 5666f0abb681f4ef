"""`holdfast memory`: what agents remember, and whether the index agrees."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import AsJson, Config, Database, Home, Limit, load_settings, open_existing
from holdfast.cli.printing import echo, print_json, print_table, short, show
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.index import KnowledgeIndex
    from holdfast.memory.knowledge import Hit
    from holdfast.memory.maintenance import Difference
    from holdfast.memory.observation import Observation, ObservationStore, Subject
    from holdfast.settings import Settings
    from holdfast.store.forget import Identities

memory = typer.Typer(
    help="What agents remember: search, list, forget, verify, reindex.",
    rich_markup_mode=None,
    add_completion=False,
)

About = Annotated[
    str,
    typer.Argument(help="Whom it is about: workspace:TYPE:id, such as default:USER:api:id:ann."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@memory.command()
def search(
    subject: About,
    query: Annotated[str, typer.Argument(help="What to look for.")],
    limit: Limit = 5,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Find what is known about a subject, by words and by meaning."""
    hits = asyncio.run(
        _search(load_settings(config, database=database, home=home), subject, query, limit)
    )
    show(
        hits,
        as_json,
        ("score", "id", "observation"),
        lambda hit: (f"{hit.score:.2f}", hit.id, short(hit.content)),
        empty="nothing is known that fits",
    )


@memory.command("list")
def list_memory(
    subject: Annotated[
        str | None, typer.Argument(help="workspace:TYPE:id; without it, all subjects.")
    ] = None,
    limit: Limit = 20,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """List who is remembered, or what is known about one."""
    settings = load_settings(config, database=database, home=home)
    if subject is None:
        subjects = asyncio.run(_subjects(settings))
        columns: tuple[str, ...] = ("subject", "observations")
        show(
            subjects,
            as_json,
            columns,
            lambda one: (one.key, one.observations),
            empty="nobody is remembered yet",
        )
        return
    known = asyncio.run(_observations(settings, subject, limit))
    columns = ("id", "type", "confidence", "updated", "observation")
    show(known, as_json, columns, _line, empty="nothing is known")


def _line(one: Observation) -> tuple[object, ...]:
    return one.id, one.type.lower(), f"{one.confidence:.2f}", one.updated_at, short(one.content)


@memory.command()
def forget(
    subject: About,
    yes: Yes = False,
    all_identities: Annotated[
        bool,
        typer.Option(
            "--all-identities",
            help="With --yes: forget everybody with that id or name if the subject has no channel.",
        ),
    ] = False,
    vacuum: Annotated[
        bool,
        typer.Option(
            "--vacuum", help="Vacuum PostgreSQL's tables at once, so that the bytes are freed."
        ),
    ] = False,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Remove every trace of a subject: observations, index, messages and their answers."""
    settings = load_settings(config, database=database, home=home)
    parts = _parts(subject)
    _confirm(subject, asyncio.run(_identities(settings, parts)), yes, all_identities)
    removed = asyncio.run(_forget(settings, parts, vacuum=vacuum))
    if as_json:
        print_json(removed)
        return
    _print_removed(removed)
    if settings.database.startswith("postgres") and not vacuum:
        echo("The server frees the bytes when it vacuums; `--vacuum` does so at once.")


def _confirm(subject: str, identities: Identities, yes: bool, all_identities: bool) -> None:
    """Ask before forgetting, and name the identities if there are several."""
    if yes:
        if len(identities.matching) > 1 and not all_identities:
            raise HoldfastError(
                f"{subject} matches {len(identities.matching)} identities: "
                f"{', '.join(identities.matching)}; name one, or add --all-identities"
            )
        return
    whom = subject
    if len(identities.all) > 1:
        echo(f"{subject} stands for {len(identities.all)} identities:")
        for identity in identities.all:
            echo(f"  {identity}")
        whom = "all of them"
    if not typer.confirm(f"Remove every trace of {whom}? This cannot be undone."):
        raise typer.Abort


def _print_removed(removed: dict[str, int]) -> None:
    left = {name: count for name, count in removed.items() if name.startswith("unattributed_")}
    rows = [(name, count) for name, count in removed.items() if name not in left]
    print_table(("what", "removed"), rows, empty="")
    for name, count in left.items():
        what = name.removeprefix("unattributed_").replace("_", " ")
        echo(f"{count} {what} of earlier releases name no person and stay; some may be theirs.")


@memory.command()
def verify(
    database: Database = None, config: Config = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Compare the index with the observations; exit code 1 where they differ."""
    found = asyncio.run(_verify(load_settings(config, database=database, home=home)))
    show(
        found,
        as_json,
        ("subject", "id", "in the index"),
        lambda one: (one.subject_key, one.id, one.what),
        empty="the index holds what the observations say",
    )
    if found:
        raise typer.Exit(1)


@memory.command()
def reindex(
    database: Database = None, config: Config = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Write the whole index anew, searchable throughout."""
    done = asyncio.run(_reindex(load_settings(config, database=database, home=home)))
    if as_json:
        print_json({"indexed": done})
    else:
        echo(f"{done} observations are indexed")


def _parts(subject: str) -> tuple[str, str, str]:
    from holdfast.memory.observation import parts_of

    return parts_of(subject)


@asynccontextmanager
async def _memory(settings: Settings) -> AsyncIterator[tuple[ObservationStore, KnowledgeIndex]]:
    from holdfast.cli.app_loader import load_app
    from holdfast.store.memory import open_knowledge, open_observations

    # An app may have an embedder of its own, and questions have to be compared by the same.
    embedder = load_app(settings.app).embedder if settings.app else None
    async with open_existing(settings) as store:
        yield open_observations(store), open_knowledge(store, embedder)


async def _search(settings: Settings, subject: str, query: str, limit: int) -> list[Hit]:
    from holdfast.memory.knowledge import DEFAULT_AGENT_NAME, KnowledgeScope

    key = ":".join(_parts(subject))
    async with _memory(settings) as (_, knowledge):
        return await knowledge.search(KnowledgeScope(DEFAULT_AGENT_NAME, key), query, limit)


async def _subjects(settings: Settings) -> list[Subject]:
    async with _memory(settings) as (observations, _):
        return await observations.find_subjects()


async def _observations(settings: Settings, subject: str, limit: int) -> list[Observation]:
    async with _memory(settings) as (observations, _):
        return await observations.find_by_subject(*_parts(subject), limit=limit)


async def _identities(settings: Settings, subject: tuple[str, str, str]) -> Identities:
    from holdfast.store.forget import find_identities
    from holdfast.store.memory import open_people

    async with open_existing(settings) as store:
        return await find_identities(open_people(store), *subject)


async def _forget(
    settings: Settings, subject: tuple[str, str, str], *, vacuum: bool
) -> dict[str, int]:
    from holdfast.store.forget import forget

    async with _memory(settings) as (observations, knowledge):
        return await forget(
            observations, knowledge, *subject, actor=actor(), files=settings.files, vacuum=vacuum
        )


async def _verify(settings: Settings) -> list[Difference]:
    from holdfast.memory.maintenance import verify

    async with _memory(settings) as (observations, knowledge):
        return await verify(observations, knowledge)


async def _reindex(settings: Settings) -> int:
    from rich.console import Console
    from rich.progress import Progress

    from holdfast.memory.maintenance import MemorySweeper, reindex

    # On stderr, and for a person who waits: what is printed is the result alone.
    console = Console(file=sys.stderr)
    async with _memory(settings) as (observations, knowledge):
        await MemorySweeper(observations, knowledge).follow_model(knowledge)
        total = await observations.count()
        with Progress(console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("indexing", total=total)
            return await reindex(
                observations, knowledge, lambda done: bar.update(task, completed=done)
            )
