"""`holdfast schedule`: messages that an agent gets at certain times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import AsJson, Config, Database, Home, load_settings, open_existing
from holdfast.cli.printing import ago, echo, print_json, print_table, short

if TYPE_CHECKING:
    from holdfast.routing.directory import Directory
    from holdfast.settings import Settings
    from holdfast.store import Store
    from holdfast.store.schedules import Draft, Run, Schedule

schedule = typer.Typer(
    help="Messages at certain times: add, list, pause, resume, run, remove, history.",
    rich_markup_mode=None,
    add_completion=False,
)


class MissedPolicy(StrEnum):
    """Policies for missed runs, as the option names them."""

    skip = "skip"
    once = "once"
    all = "all"


Id = Annotated[
    str, typer.Argument(help="Id of the schedule, as `holdfast schedule list` shows it.")
]
COLUMNS = ("id", "agent", "timing", "zone", "next run", "last run", "state", "to", "text")
RUN_COLUMNS = ("message", "run", "status", "answer")


@schedule.command()
def add(
    timing: Annotated[
        str,
        typer.Argument(
            metavar="CRON",
            help='Cron like "0 9 * * mon-fri", "every 10 min", or a time like 2027-01-31T09:00.',
        ),
    ],
    text: Annotated[str, typer.Argument(help="Text for the agent.")],
    agent: Annotated[
        str, typer.Option(help="Agent or team that gets it (default: the default agent).")
    ] = "",
    zone: Annotated[str, typer.Option(help="Time zone, such as Europe/Berlin.")] = "UTC",
    to: Annotated[
        str | None,
        typer.Option(
            metavar="CHANNEL:CONVERSATION",
            help="Conversation that gets the answers, such as slack:C123 (default: history only).",
        ),
    ] = None,
    missed: Annotated[
        MissedPolicy, typer.Option(help="Runs to make up for after a time without a process.")
    ] = MissedPolicy.once,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Add a schedule. Prints its id and its next run."""
    from holdfast.store.schedules import Draft, describe_schedule

    draft = Draft(timing=timing, text=text, agent=agent, zone=zone, missed=missed.value, to=to)
    settings = load_settings(config, database=database, home=home)
    added = asyncio.run(_add(settings, draft))
    if as_json:
        print_json(describe_schedule(added))
    else:
        echo(f"{added.id} runs {_next(added)}")


@schedule.command("list")
def list_schedules(
    database: Database = None, config: Config = None, home: Home = None, as_json: AsJson = False
) -> None:
    """List all schedules with their next runs."""
    from holdfast.store.schedules import describe_schedule

    found = asyncio.run(_list(load_settings(config, database=database, home=home)))
    if as_json:
        print_json([describe_schedule(one) for one in found])
    else:
        print_table(
            COLUMNS,
            map(_line, found),
            empty="there is no schedule yet; add one with `holdfast schedule add`",
        )


@schedule.command()
def pause(id: Id, database: Database = None, config: Config = None, home: Home = None) -> None:
    """Pause a schedule until it is resumed, even over restarts."""
    from holdfast.store.schedules import pause_schedule

    asyncio.run(_change(load_settings(config, database=database, home=home), id, pause_schedule))
    echo(f"paused {id}")


@schedule.command()
def resume(id: Id, database: Database = None, config: Config = None, home: Home = None) -> None:
    """Resume a paused schedule; runs during the pause are not made up for."""
    from holdfast.store.schedules import resume_schedule

    settings = load_settings(config, database=database, home=home)
    resumed = asyncio.run(_change(settings, id, resume_schedule))
    echo(f"{id} runs {_next(resumed)}")


@schedule.command()
def remove(id: Id, database: Database = None, config: Config = None, home: Home = None) -> None:
    """Delete a schedule; its messages stay."""
    from holdfast.store.schedules import remove_schedule

    asyncio.run(_change(load_settings(config, database=database, home=home), id, remove_schedule))
    echo(f"removed {id}")


@schedule.command()
def run(id: Id, database: Database = None, config: Config = None, home: Home = None) -> None:
    """Run a schedule once now. Prints the message's id; the next run stays."""
    echo(asyncio.run(_run(load_settings(config, database=database, home=home), id)))


@schedule.command()
def history(
    id: Id,
    limit: Annotated[int, typer.Option(help="Maximum number of runs.", min=1, max=1000)] = 20,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """List the latest runs of a schedule and the answers to them, newest first."""
    from holdfast.store.schedules import describe_run

    runs = asyncio.run(_history(load_settings(config, database=database, home=home), id, limit))
    if as_json:
        print_json([describe_run(one) for one in runs])
    else:
        print_table(RUN_COLUMNS, map(_run_line, runs), empty=f"{id} has not run yet")


def _line(one: Schedule) -> tuple[object, ...]:
    when = (one.timing, one.zone, one.next_at, one.last_at, one.state)
    return one.id, one.agent, *when, one.to, short(one.text)


def _run_line(one: Run) -> tuple[object, ...]:
    return one.message_id, one.ran_at, one.status, short(one.answer or "")


async def _add(settings: Settings, draft: Draft) -> Schedule:
    from holdfast.routing.schedules import add_for_agent

    async with open_existing(settings) as store:
        routing = (await _directory(store, settings)).routing
        return await add_for_agent(store, routing, draft, actor=actor())


async def _list(settings: Settings) -> list[Schedule]:
    from holdfast.store.schedules import Schedules

    async with open_existing(settings) as store:
        return await Schedules(store).all()


async def _change(
    settings: Settings, id: str, change: Callable[..., Awaitable[Schedule]]
) -> Schedule:
    async with open_existing(settings) as store:
        return await change(store, id, actor=actor())


async def _run(settings: Settings, id: str) -> str:
    from holdfast.routing.schedules import run_now

    async with open_existing(settings) as store:
        routing, attempts = (await _directory(store, settings)).routing, settings.max_attempts
        return await run_now(store, routing, id, max_attempts=attempts, actor=actor())


async def _history(settings: Settings, id: str, limit: int) -> list[Run]:
    from holdfast.store.schedules import Schedules, runs_of

    async with open_existing(settings) as store:
        return await runs_of(store, await Schedules(store).find(id), limit)


async def _directory(store: Store, settings: Settings) -> Directory:
    from holdfast.routing.directory import configured_routing, read

    return await read(store, configured_routing(settings))


def _next(one: Schedule) -> str:
    if one.next_at is None:
        return "no more"
    return f"next at {one.next_at:%Y-%m-%d %H:%M:%S} UTC, {ago(one.next_at)}"
