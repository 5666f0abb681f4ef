"""Build the agents and teams of holdfast.toml; errors name the line in the file."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from holdfast.agents.echo import echo
from holdfast.cli.app_loader import import_object
from holdfast.errors import HoldfastError
from holdfast.settings import Settings, locate_setting
from holdfast.settings.agents import (
    AgentTable,
    CommandTable,
    EchoTable,
    FunctionTable,
    LlmTable,
    McpTable,
    TeamTable,
)
from holdfast.settings.environment import child_environment
from holdfast.settings.extras import require
from holdfast.settings.secrets import secret_paths

if TYPE_CHECKING:
    from holdfast.agents.base import Agent
    from holdfast.agents.function import Function
    from holdfast.agents.llm import McpServer
    from holdfast.agents.sandbox import Sandbox
    from holdfast.app import AgentHarness

SCRIPT = "script:"


def add_agents(app: AgentHarness, settings: Settings) -> None:
    """Add the agents and teams of the settings to the app; the echo agent if there are none."""
    for id_, table in settings.agents.items():
        if id_ in app.agents:
            raise HoldfastError(
                f"{locate_setting(settings, 'agents', id_)}: the app already has this agent"
            )
        app.add(id_, _build_agent(id_, table, settings), **table.policy())
    if not app.agents:
        app.add("echo", echo)
    if settings.default:
        _require(app, settings, settings.default, "default")
        app.default = settings.default
    for id_, team in settings.teams.items():
        _add_team(app, settings, id_, team)
    for number, schedule in enumerate(settings.schedules):
        if schedule.agent is not None:
            _require(app, settings, schedule.agent, "schedules", number, "agent")


def _add_team(app: AgentHarness, settings: Settings, id_: str, team: TeamTable) -> None:
    for member in team.agents:
        _require(app, settings, member, "teams", id_, "agents")
    if team.leader not in team.agents:
        line = locate_setting(settings, "teams", id_, "leader")
        raise HoldfastError(
            f"{line}: {team.leader!r} is not one of its agents: {', '.join(team.agents)}"
        )
    with _errors_at(settings, "teams", id_, "agents"):
        app.team(id_, name=team.name, agents=team.agents, leader=team.leader)


def _build_agent(id_: str, table: AgentTable, settings: Settings) -> Agent | Function:
    match table:
        case CommandTable():
            return _command(id_, table, settings)
        case LlmTable():
            return _llm(id_, table, settings)
        case FunctionTable():
            with _errors_at(settings, "agents", id_, "function"):
                return _function(table.function)
        case EchoTable():
            return echo
        case _:
            assert_never(table)


def _command(id_: str, table: CommandTable, settings: Settings) -> Agent:
    from holdfast.agents.acp import AcpAgent
    from holdfast.agents.command import CommandAgent

    workspace = settings.workspace_folder / id_
    with _errors_at(settings, "workspaces"):
        _refuse_secrets(workspace, settings)
    command = _resolve_command(id_, table, settings)
    options: dict[str, Any] = {
        "variables": table.variables,
        "max_output": table.max_output,
        "sandbox": _sandbox(("agents", id_), table, workspace, settings),
    }
    if table.protocol == "acp":
        sessions = settings.home / "sessions" / id_
        return AcpAgent(command, workspace, sessions, approval=table.approval, **options)
    return CommandAgent(command, workspace, **options)


def _sandbox(
    keys: tuple[str, str], table: CommandTable | McpTable, workspace: Path, settings: Settings
) -> Sandbox:
    from holdfast.agents.sandbox import View, sandbox_of

    with _errors_at(settings, *keys, "readable"):
        readable = _paths(table.readable, settings)
    with _errors_at(settings, *keys, "writable"):
        writable = _paths(table.writable, settings, may_write=True)
    view = View(workspace, readable, writable, secret_paths(settings), table.network)
    with _errors_at(settings, *(("sandbox",) if table.sandbox is None else (*keys, "sandbox"))):
        return sandbox_of(table.sandbox or settings.sandbox, view)


def _paths(
    paths: Sequence[Path], settings: Settings, *, may_write: bool = False
) -> tuple[Path, ...]:
    """Return absolute paths; refuse missing ones, and writable ones that hold our files."""
    resolved = tuple(
        Path(os.path.normpath(_folder(settings) / path.expanduser())) for path in paths
    )
    for path in resolved:
        if not os.path.exists(path):
            raise HoldfastError(f"{path} does not exist")
        if may_write:
            _refuse_secrets(path, settings)
    return resolved


def _refuse_secrets(path: Path, settings: Settings) -> None:
    """Raise an error if a folder that a program may write holds files of ours."""
    folder = path.resolve()
    if any(secret.resolve().is_relative_to(folder) for secret in secret_paths(settings)):
        raise HoldfastError(f"{path} holds files of Holdfast itself; name a folder without them")


def _llm(id_: str, table: LlmTable, settings: Settings) -> Agent:
    with _errors_at(settings, "agents", id_, "model"):
        require("llm", "a language model")
        from holdfast.agents import llm

        script = table.model.removeprefix(SCRIPT)
        is_script = script != table.model
        model = (
            llm.scripted(_function(script))
            if is_script
            else llm.model_of(table.model, settings.providers)
        )
    with _errors_at(settings, "agents", id_, "prompt"):
        prompt = None if table.prompt is None else llm.Prompt.read(_folder(settings) / table.prompt)
    with _errors_at(settings, "agents", id_, "tools"):
        tools = [_function(name) for name in table.tools]
    with _errors_at(settings, "agents", id_, "mcp"):
        tables = {name: _server(name, settings) for name in table.mcp}
    servers = [mcp_server(name, server, settings) for name, server in tables.items()]
    return llm.LlmAgent(
        model,
        prompt=prompt,
        tools=tools,
        toolsets=servers,
        history_tokens=table.history_tokens,
        max_requests=table.max_requests,
        stream=table.stream,
        schedules=table.schedules,
    )


def mcp_server(name: str, table: McpTable, settings: Settings) -> McpServer:
    """Build a server of [mcp.…], in its sandbox."""
    from holdfast.agents import llm

    workspace = settings.home / "mcp" / name
    sandbox = _sandbox(("mcp", name), table, workspace, settings)
    with _errors_at(settings, "mcp", name):
        return llm.server_of(name, table, sandbox, workspace)


def _server(name: str, settings: Settings) -> McpTable:
    if name not in settings.mcp:
        known = ", ".join(settings.mcp) or "none"
        raise HoldfastError(f"there is no MCP server [mcp.{name}]; known are: {known}")
    return settings.mcp[name]


def _function(spec: str) -> Callable[..., Any]:
    module, colon, name = spec.partition(":")
    if not (module and colon and name):
        raise HoldfastError(f"{spec!r} is not module:name")
    function = import_object(module, name)[1]
    if not callable(function):
        raise HoldfastError(f"{spec} is of type {type(function).__name__}, not a function")
    return function


@contextmanager
def _errors_at(settings: Settings, *keys: str) -> Iterator[None]:
    """Add the file, line and name of a setting to errors raised in the block."""
    try:
        yield
    except HoldfastError as error:
        raise HoldfastError(f"{locate_setting(settings, *keys)}: {error}") from error


def _resolve_command(id_: str, table: CommandTable, settings: Settings) -> list[str]:
    """Return the command with the full path of its program; ./ is the folder of the file.

    A missing program is refused at the start, not at the first message."""
    program, *arguments = table.command
    wanted = str(_folder(settings) / program) if program.startswith(("./", "../")) else program
    path = shutil.which(wanted, path=child_environment(()).get("PATH"))
    if path is None:
        problem = f"there is no program {program!r}; install it or add its folder to PATH"
        if Path(wanted).is_file():
            chmod = f"chmod +x {shlex.quote(wanted)}"
            problem = f"the file {wanted} is not executable; run: {chmod}"
        line = locate_setting(settings, "agents", id_, "command")
        raise HoldfastError(f"{line}: {problem}")
    return [path, *arguments]


def _folder(settings: Settings) -> Path:
    path = settings.model_config.get("toml_file")
    return path.absolute().parent if isinstance(path, Path) else Path.cwd()


def _require(app: AgentHarness, settings: Settings, agent: str, *keys: str | int) -> None:
    if agent not in app.agents:
        line, known = locate_setting(settings, *keys), ", ".join(sorted(app.agents))
        raise HoldfastError(f"{line}: there is no agent named {agent!r}; known are: {known}")
