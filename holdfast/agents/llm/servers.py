"""Tools of MCP servers, started or asked for each turn anew, so that one that hangs or dies harms one turn."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.toolsets import AbstractToolset

from holdfast.agents.llm.context import Context
from holdfast.agents.sandbox import Sandbox
from holdfast.agents.supervisor import supervised
from holdfast.errors import HoldfastError
from holdfast.settings.agents import McpTable
from holdfast.settings.environment import child_environment, variable


def server_of(
    name: str, table: McpTable, sandbox: Sandbox | None = None, workspace: Path | None = None
) -> AbstractToolset[Context]:
    """Return the tools of a server, each with the server's name before its own."""
    if bool(table.command) == bool(table.url):
        raise HoldfastError(f"the MCP server {name!r} needs either a command or a url")
    transport: StdioTransport | StreamableHttpTransport
    if table.command:
        # Its standard input ends with us, also where we are killed; a server that does not mind is ended, too.
        program, *arguments = supervised(0, _wrapped(table.command, sandbox, workspace))
        transport = StdioTransport(
            program, arguments, env=child_environment(table.variables), keep_alive=False
        )
    else:
        transport = StreamableHttpTransport(table.url, auth=_token(name, table))
    return MCPToolset[Context](transport, id=name).prefixed(name)


def _wrapped(command: Sequence[str], sandbox: Sandbox | None, workspace: Path | None) -> list[str]:
    """Return the command in its sandbox, which has an empty folder to begin in."""
    if sandbox is None or workspace is None or sandbox.name == "none":
        return list(command)
    workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    program, *arguments = command
    return sandbox.wrap(
        [shutil.which(program, path=child_environment(()).get("PATH")) or program, *arguments]
    )


def _token(name: str, table: McpTable) -> str | None:
    if not table.token_variable:
        return None
    token = variable(table.token_variable)
    if not token:
        raise HoldfastError(
            f"the token of the MCP server {name!r} is missing: {table.token_variable} is not set"
        )
    return token
