"""`holdfast pause` and `resume`: stop work on agents, channels and queues, and start it again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.audit import actor
from holdfast.cli.options import AsJson, Config, Database, Home, load_settings, open_existing
from holdfast.cli.printing import echo, print_rows
from holdfast.errors import HoldfastError, WrongUsage

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store.pauses import Pause, PauseKind

Kind = Annotated[str, typer.Argument(help="agent, channel or queue.")]
Name = Annotated[str, typer.Argument(help="Its name, such as coder, slack or inbox.")]
COLUMNS = ("kind", "name", "since", "by", "reason")


def pause(
    kind: Annotated[
        str | None, typer.Argument(help="agent, channel or queue; without it, list pauses.")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="Its name, such as coder, slack or inbox.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="The reason, for other operators.")] = None,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Pause an agent, a channel or a queue in all processes, or list what is paused."""
    settings = load_settings(config, database=database, home=home)
    if kind is None:
        pauses = asyncio.run(_list(settings))
        print_rows(pauses, as_json, COLUMNS, _line, empty="nothing is paused")
        return
    if name is None:
        raise WrongUsage(f"name the {_kind_of(kind)} to pause, as in `holdfast pause agent coder`")
    made = asyncio.run(_pause(settings, _kind_of(kind), name, reason))
    echo(f"paused {made.kind} {made.name}; running turns go on, the rest waits for `resume`")


def resume(
    kind: Kind, name: Name, database: Database = None, config: Config = None, home: Home = None
) -> None:
    """Let processes work a paused agent, channel or queue again."""
    settings = load_settings(config, database=database, home=home)
    if not asyncio.run(_resume(settings, _kind_of(kind), name)):
        raise HoldfastError(f"{kind} {name} is not paused; `holdfast pause` lists what is")
    echo(f"resumed {kind} {name}")


def _kind_of(text: str) -> PauseKind:
    from holdfast.store.pauses import KINDS

    for kind in KINDS:
        if kind == text:
            return kind
    raise WrongUsage(f"{text!r} cannot be paused; give agent, channel or queue")


def _line(one: Pause) -> tuple[object, ...]:
    return one.kind, one.name, one.paused_at, one.paused_by, one.reason


async def _list(settings: Settings) -> list[Pause]:
    from holdfast.store.pauses import Pauses

    async with open_existing(settings) as store:
        return list((await Pauses(store).all()).pauses)


async def _pause(settings: Settings, kind: PauseKind, name: str, reason: str | None) -> Pause:
    from holdfast.routing.directory import configured_routing, read
    from holdfast.routing.pauses import check_pause
    from holdfast.store.pauses import REASON_LENGTH, Pauses

    if reason is not None and len(reason) > REASON_LENGTH:
        raise WrongUsage(f"a reason has at most {REASON_LENGTH} characters")
    async with open_existing(settings) as store:
        directory = await read(store, configured_routing(settings))
        problem = check_pause(kind, name, directory)
        if problem is not None:
            raise HoldfastError(problem.text)
        return await Pauses(store).pause(kind, name, reason, actor=actor())


async def _resume(settings: Settings, kind: PauseKind, name: str) -> bool:
    from holdfast.store.pauses import Pauses

    async with open_existing(settings) as store:
        return await Pauses(store).resume(kind, name, actor=actor())
