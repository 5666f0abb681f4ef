"""`holdfast memory`: search, list, forget, verify and reindex observations."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import AsJson, Config, Database, Home, Limit, load_settings, open_existing
from holdfast.cli.printing import echo, print_json, print_rows, print_table, short
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.index import KnowledgeIndex
    from holdfast.memory.knowledge import Hit
    from holdfast.memory.maintenance import Difference
    from holdfast.memory.observation import Observation, ObservationStore, Subject
    from holdfast.settings import Settings
    from holdfast.store.forget import Identities

memory = typer.Typer(
    help="Memory of agents: search, list, forget, verify, reindex.",
    rich_markup_mode=None,
    add_completion=False,
)

About = Annotated[
    str,
    typer.Argument(help="Subject: workspace:TYPE:id, such as default:USER:api:id:ann."),
]
SUBJECT = ("subject", "observations")
OBSERVATION = ("id", "type", "confidence", "updated", "observation")
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@memory.command()
def search(
    subject: About,
    query: Annotated[str, typer.Argument(help="Text to search for.")],
    limit: Limit = 5,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Search the observations about a subject, by words and by meaning."""
    hits = asyncio.run(
        _search(load_settings(config, database=database, home=home), subject, query, limit)
    )
    print_rows(
        hits,
        as_json,
        ("score", "id", "observation"),
        lambda hit: (f"{hit.score:.2f}", hit.id, short(hit.content)),
        empty="no observation matches",
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
    """List the subjects, or the observations about one."""
    settings = load_settings(config, database=database, home=home)
    if subject is None:
        subjects = asyncio.run(_subjects(settings, limit))
        none = "there are no observations yet"
        print_rows(
            subjects[:limit], as_json, SUBJECT, attrgetter("key", "observations"), empty=none
        )
        if len(subjects) > limit:
            echo("there are more subjects: raise --limit", err=True)
    else:
        observations = asyncio.run(_observations(settings, subject, limit))
        none = "there are no observations about it"
        print_rows(observations, as_json, OBSERVATION, _line, empty=none)


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
            "--vacuum", help="On PostgreSQL, vacuum the tables at once to free the bytes."
        ),
    ] = False,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Delete all data about a subject: observations, index, messages and their answers."""
    settings = load_settings(config, database=database, home=home)
    parts = _parts(subject)
    _confirm(subject, asyncio.run(_identities(settings, parts)), yes, all_identities)
    removed = asyncio.run(_forget(settings, parts, vacuum=vacuum))
    if as_json:
        print_json(removed)
        return
    _print_removed(removed)
    if settings.database.startswith("postgres") and not vacuum:
        echo("The next vacuum of the server frees the bytes; `--vacuum` does so at once.")


def _confirm(subject: str, identities: Identities, yes: bool, all_identities: bool) -> None:
    """Ask before forgetting, and name the identities if there are several."""
    matching, known = identities.matching, identities.all
    if yes and len(matching) > 1 and not all_identities:
        several = f"{subject} matches {len(matching)} identities: {', '.join(matching)}"
        raise HoldfastError(f"{several}; name one, or add --all-identities")
    if yes:
        return
    if len(known) > 1:
        echo("\n  ".join((f"{subject} matches {len(known)} identities:", *known)), err=True)
    whom = "all of them" if len(known) > 1 else subject
    if not typer.confirm(f"Delete all data about {whom}? This cannot be undone.", err=True):
        raise typer.Abort


def _print_removed(removed: dict[str, int]) -> None:
    """Print the rows removed of each kind, and the rows that could not be attributed."""
    kept = {name: count for name, count in removed.items() if name.startswith("unattributed_")}
    rows = [(name, count) for name, count in removed.items() if name not in kept]
    print_table(("kind", "removed"), rows, empty="")
    for name, count in kept.items():
        kind = name.removeprefix("unattributed_").replace("_", " ")
        echo(f"{count} {kind} of earlier releases name no person and stay; some may be theirs.")


@memory.command()
def verify(
    database: Database = None, config: Config = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Compare the index with the observations; exit code 1 if they differ."""
    differences = asyncio.run(_verify(load_settings(config, database=database, home=home)))
    print_rows(
        differences,
        as_json,
        ("subject", "id", "in the index"),
        lambda one: (one.subject_key, one.id, one.what),
        empty="the index matches the observations",
    )
    if differences:
        raise typer.Exit(1)


@memory.command()
def reindex(
    database: Database = None, config: Config = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Rebuild the whole index; it stays searchable meanwhile."""
    number = asyncio.run(_reindex(load_settings(config, database=database, home=home)))
    if as_json:
        print_json({"indexed": number})
    else:
        echo(f"{number} observations are indexed")


def _parts(subject: str) -> tuple[str, str, str]:
    from holdfast.memory.observation import parts_of

    return parts_of(subject)


@asynccontextmanager
async def _memory(settings: Settings) -> AsyncIterator[tuple[ObservationStore, KnowledgeIndex]]:
    from holdfast.cli.app_loader import load_app
    from holdfast.store.memory import open_knowledge, open_observations

    # An app may bring its own embedder; queries need the same one.
    embedder = load_app(settings.app).embedder if settings.app else None
    async with open_existing(settings) as store:
        yield open_observations(store), open_knowledge(store, embedder)


async def _search(settings: Settings, subject: str, query: str, limit: int) -> list[Hit]:
    from holdfast.memory.knowledge import DEFAULT_AGENT_NAME, KnowledgeScope

    key = ":".join(_parts(subject))
    async with _memory(settings) as (_, knowledge):
        return await knowledge.search(KnowledgeScope(DEFAULT_AGENT_NAME, key), query, limit)


async def _subjects(settings: Settings, limit: int) -> list[Subject]:
    """Return the first subjects, and one more if there are more."""
    async with _memory(settings) as (observations, _):
        return await observations.find_subjects(limit=limit + 1)


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

    # The progress bar goes to stderr; stdout gets the result alone.
    console = Console(file=sys.stderr)
    async with _memory(settings) as (observations, knowledge):
        await MemorySweeper(observations, knowledge).follow_model(knowledge)
        total = await observations.count()
        with Progress(console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("indexing", total=total)
            return await reindex(
                observations, knowledge, lambda done: bar.update(task, completed=done)
            )
