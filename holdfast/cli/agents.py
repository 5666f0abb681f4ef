"""`holdfast agents`: who answers, of which kind, in which teams, and what waits for each."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.cli.options import AsJson, Config, Database, Home, opened, settings_of
from holdfast.cli.printing import print_json, print_table
from holdfast.cli.status import LIVE
from holdfast.errors import NewDatabase

if TYPE_CHECKING:
    from holdfast.router import Routing
    from holdfast.settings import Settings
    from holdfast.settings.agents import RunTable
    from holdfast.store.base import Count


def agents(database: Database = None, config: Config = None, home: Home = None, as_json: AsJson = False) -> None:
    """Show the agents, and what waits for each."""
    rows = asyncio.run(_agents(settings_of(config, database=database, home=home)))
    if as_json:
        print_json(rows)
        return
    columns = ("agent", "name", "kind", "runs", "sandbox", "teams", "default", "lane", *LIVE)
    cells = [[_cell(row[name]) for name in columns] for row in rows]
    print_table(columns, cells, empty="no agents are known yet: start `holdfast up`")


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else ""
    return " ".join(value) if isinstance(value, list) else value


async def _agents(settings: Settings) -> list[dict[str, Any]]:
    from holdfast.event import INBOX
    from holdfast.router import Routing
    from holdfast.store.base import Count

    routing, counts = Routing(), list[Count]()
    # What is configured can be looked at before the first start.
    with suppress(NewDatabase):
        async with opened(settings) as store:
            routing = await Routing.read(store)
            counts = [count for count in await store.counts() if count.queue == INBOX]
    ids = sorted({*routing.lanes, *settings.agents})
    default = settings.default or routing.default or next(iter(settings.agents), "")
    return [_configured(id_, settings) | _announced(id_, default, routing, counts) for id_ in ids]


def _configured(id_: str, settings: Settings) -> dict[str, Any]:
    """What holdfast.toml says; an app's own agents are functions of it."""
    teams = [team for team, table in settings.teams.items() if id_ in table.agents]
    table = settings.agents.get(id_)
    if table is None:
        return {"agent": id_, "name": None, "kind": "app", "runs": None, "sandbox": None, "teams": teams}
    about = {"agent": id_, "name": table.name, "kind": table.kind, "runs": table.runs}
    return about | {"sandbox": _sandbox(table, settings), "teams": teams}


def _sandbox(table: RunTable, settings: Settings) -> str | None:
    """Name the sandbox that a start on this machine would take."""
    from holdfast.agents.sandbox import bubblewrap_problem
    from holdfast.settings.agents import CommandTable

    if not isinstance(table, CommandTable):
        return None
    wanted = table.sandbox or settings.sandbox
    if wanted != "auto":
        return wanted
    return "none" if bubblewrap_problem() else "bubblewrap"


def _announced(id_: str, default: str, routing: Routing, counts: list[Count]) -> dict[str, Any]:
    """What processes said at their start, and what waits; no lane means that none has run it yet."""
    is_default = id_ == default
    mine = [count for count in counts if count.target == id_ or (is_default and count.target == "")]
    live = {kind: sum(getattr(count, kind) for count in mine) for kind in LIVE}
    return {"default": is_default, "lane": routing.lanes.get(id_), **live}
