"""The agents and teams of holdfast.toml; what cannot work is told with the line where it stands."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from holdfast.cli.loading import named
from holdfast.errors import HoldfastError
from holdfast.settings import Settings, place_of
from holdfast.settings.agents import AgentTable, CommandTable, EchoTable, FunctionTable
from holdfast.settings.environment import passed_on

if TYPE_CHECKING:
    from holdfast.agent import Agent
    from holdfast.agents.function import Function
    from holdfast.harness import AgentHarness


def add_configured(app: AgentHarness, settings: Settings) -> None:
    """Agents and teams of the settings join those of the app; where there are none at all, an echo answers."""
    from holdfast.agents.echo import echo

    for id_, table in settings.agents.items():
        if id_ in app.agents:
            raise HoldfastError(f"{place_of(settings, 'agents', id_)}: the app has an agent of this name already")
        app.add(id_, _made(id_, table, settings), **table.policy())
    if not app.agents:
        app.add("echo", echo)
    if settings.default:
        _require(app, settings, settings.default, "default")
        app.default = settings.default
    for id_, team in settings.teams.items():
        for member in team.agents:
            _require(app, settings, member, "teams", id_, "agents")
        if team.leader not in team.agents:
            place = place_of(settings, "teams", id_, "leader")
            raise HoldfastError(f"{place}: {team.leader!r} is not one of its agents: {', '.join(team.agents)}")
        app.team(id_, name=team.name, agents=team.agents, leader=team.leader)


def _made(id_: str, table: AgentTable, settings: Settings) -> Agent | Function:
    match table:
        case CommandTable():
            from holdfast.agents.command import CommandAgent

            return CommandAgent(
                _found(id_, table, settings),
                settings.home / "workspace" / id_,
                variables=table.variables,
                max_output=table.max_output,
            )
        case FunctionTable():
            return _function(id_, table, settings)
        case EchoTable():
            from holdfast.agents.echo import echo

            return echo
        case _:
            assert_never(table)


def _function(id_: str, table: FunctionTable, settings: Settings) -> Function:
    module, _, name = table.function.partition(":")
    place = place_of(settings, "agents", id_, "function")
    try:
        function = named(module, name)[1]
    except HoldfastError as error:
        raise HoldfastError(f"{place}: {error}") from error
    if not callable(function):
        raise HoldfastError(f"{place}: {table.function} is of type {type(function).__name__}, not a function")
    return function


def _found(id_: str, table: CommandTable, settings: Settings) -> list[str]:
    """The command with its program found now rather than at the first message; ./ is the folder of the file."""
    program, *arguments = table.command
    wanted = str(_folder(settings) / program) if program.startswith(("./", "../")) else program
    found = shutil.which(wanted, path=passed_on(()).get("PATH"))
    if found is None:
        place = place_of(settings, "agents", id_, "command")
        raise HoldfastError(
            f"{place}: there is no program {program!r} that can be run; is it installed, and on the PATH?"
        )
    return [found, *arguments]


def _folder(settings: Settings) -> Path:
    path = settings.model_config.get("toml_file")
    return path.absolute().parent if isinstance(path, Path) else Path.cwd()


def _require(app: AgentHarness, settings: Settings, agent: str, *keys: str) -> None:
    if agent not in app.agents:
        known = ", ".join(sorted(app.agents))
        raise HoldfastError(f"{place_of(settings, *keys)}: there is no agent named {agent!r}; known are: {known}")
