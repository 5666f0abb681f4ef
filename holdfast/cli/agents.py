"""`holdfast agents`: the agents, their teams and processes, and what waits for each."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.cli.options import AsJson, Config, Database, Home, load_settings, open_existing
from holdfast.cli.printing import is_wide, print_json, print_table
from holdfast.cli.status import LIVE
from holdfast.errors import NewDatabase

if TYPE_CHECKING:
    from holdfast.queue.store import Count
    from holdfast.routing.directory import Directory
    from holdfast.settings import Settings
    from holdfast.settings.agents import RunTable

NO_AGENTS = "no agents are known yet: start `holdfast up`"
WIDE = (
    *("agent", "name", "kind", "runs", "sandbox", "teams", "default", "lane", "paused"),
    "processes",
    *LIVE,
)
NARROW = ("agent", "kind", "teams", "lane", "runs in", "waiting", "running")
"""The columns that fit into 80."""


def agents(
    database: Database = None, config: Config = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Show the agents, where they run, and what waits for each."""
    rows = asyncio.run(_agents(load_settings(config, database=database, home=home)))
    if as_json:
        print_json(rows)
    elif is_wide():
        _print_wide(rows)
    else:
        _print_narrow(rows)


def _print_wide(rows: list[dict[str, Any]]) -> None:
    cells = [[_cell(row[name]) for name in WIDE] for row in rows]
    print_table(WIDE, cells, empty=NO_AGENTS)


def _print_narrow(rows: list[dict[str, Any]]) -> None:
    """Print the columns that fit into 80."""
    print_table(NARROW, [_narrow_cells(row) for row in rows], empty=NO_AGENTS)


def _narrow_cells(row: dict[str, Any]) -> list[Any]:
    return [
        " ".join([row["agent"], *[f"({what})" for what in ("default", "paused") if row[what]]]),
        row["kind"],
        _cell(row["teams"]),
        row["lane"],
        "\n".join(row["processes"]) or "no process",
        row["ready"] + row["delayed"] + row["queued"],
        row["leased"],
    ]


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else ""
    return " ".join(value) if isinstance(value, list) else value


async def _agents(settings: Settings) -> list[dict[str, Any]]:
    from holdfast.queue.event import INBOX
    from holdfast.queue.store import Count
    from holdfast.routing.directory import Directory, configured_routing, read

    known, counts = configured_routing(settings), list[Count]()
    directory = Directory(routing=known)
    # Agents of holdfast.toml are shown before the first start, too.
    with suppress(NewDatabase):
        async with open_existing(settings) as store:
            directory = await read(store, known)
            counts = [count for count in await store.counts() if count.queue == INBOX]
    return [_agent(id_, directory, settings, counts) for id_ in sorted(directory.routing.lanes)]


def _sandbox(table: RunTable, settings: Settings) -> str | None:
    """Name the sandbox that a start on this machine would use; None for other kinds."""
    from holdfast.agents.sandbox import bubblewrap_problem
    from holdfast.settings.agents import CommandTable

    if not isinstance(table, CommandTable):
        return None
    wanted = table.sandbox or settings.sandbox
    if wanted != "auto":
        return wanted
    return "none" if bubblewrap_problem() else "bubblewrap"


def _agent(
    id_: str, directory: Directory, settings: Settings, counts: list[Count]
) -> dict[str, Any]:
    """Describe an agent as live processes and holdfast.toml define it."""
    routing, table = directory.routing, settings.agents.get(id_)
    is_default = id_ == routing.default
    mine = [count for count in counts if count.target == id_ or (is_default and count.target == "")]
    return {
        "agent": id_,
        "name": routing.names.get(id_),
        "kind": routing.kinds.get(id_, "app") if table is None else table.kind,
        "runs": None if table is None else table.runs,
        "sandbox": None if table is None else _sandbox(table, settings),
        "teams": [team for team, one in routing.teams.items() if id_ in one.agents],
        "default": is_default,
        "lane": routing.lanes[id_],
        "paused": directory.is_paused(id_),
        "processes": directory.servers.get(id_, []),
        **{kind: sum(getattr(count, kind) for count in mine) for kind in LIVE},
    }
