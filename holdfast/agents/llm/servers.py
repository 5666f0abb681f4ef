"""MCP servers. Each turn connects anew, so a server that hangs or dies harms one turn only."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp.shared.exceptions import MCPError
from mcp.types import CONNECTION_CLOSED
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.toolsets import PrefixedToolset, ToolsetTool

from holdfast.agents.llm.context import Context
from holdfast.agents.sandbox import Sandbox
from holdfast.agents.supervisor import supervised_command
from holdfast.errors import HoldfastError
from holdfast.settings.agents import McpTable
from holdfast.settings.environment import child_environment, variable
from holdfast.telemetry.redaction import hide

CHECK_WITHIN = 10.0
"""Seconds that `holdfast doctor` gives a server to start and to list its tools."""


class McpServerFailed(HoldfastError):
    """A server could not be reached or broke off. The turn is tried again."""


class ServerTools(MCPToolset[Context]):
    """The tools of one server. A lost connection is a failure of the server, not of a tool."""

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Context],
        tool: ToolsetTool[Context],
    ) -> Any:
        try:
            return await super().call_tool(name, tool_args, ctx, tool)
        except ModelRetry as error:
            # A tool's error is for the model to read, and recorded as the result of its step.
            if not _is_connection_lost(error.__cause__):
                raise
            raise _failure(self.id, "it closed the connection") from error


@dataclass
class McpServer(PrefixedToolset[Context]):
    """The tools of one server, each with the server's name before its own.

    Failures name the server."""

    program: str = ""
    """The program that has to exist before the server can start; '' if there is none to look
    for."""

    async def __aenter__(self) -> Self:
        with self._named_failures():
            if self.program and _find_program(self.program) is None:
                raise FileNotFoundError(f"there is no program {self.program!r}")
            return await super().__aenter__()

    async def get_tools(self, ctx: RunContext[Context]) -> dict[str, ToolsetTool[Context]]:
        with self._named_failures():
            return await super().get_tools(ctx)

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Context],
        tool: ToolsetTool[Context],
    ) -> Any:
        with self._named_failures():
            return await super().call_tool(name, tool_args, ctx, tool)

    async def check(self, within: float = CHECK_WITHIN) -> list[str]:
        """Start or call the server once. Returns the names of its tools; raises McpServerFailed."""
        assert isinstance(self.wrapped, MCPToolset)
        try:
            async with asyncio.timeout(within), self:
                with self._named_failures():
                    return [tool.name for tool in await self.wrapped.list_tools()]
        except TimeoutError:
            raise _failure(self.prefix, f"no answer within {within:g} s") from None

    @contextmanager
    def _named_failures(self) -> Iterator[None]:
        """Raise failures of the server as McpServerFailed.

        Errors of a tool stay as the model gets them."""
        try:
            yield
        except HoldfastError:
            raise
        except Exception as error:
            if type(error).__module__ == ModelRetry.__module__:
                # Signals between tools and pydantic-ai, such as an error for the model to read.
                raise
            raise _failure(self.prefix, _reason(error)) from error


def server_of(
    name: str, table: McpTable, sandbox: Sandbox | None = None, workspace: Path | None = None
) -> McpServer:
    """Build the toolset of a configured server. Raises HoldfastError if its table is incomplete."""
    if bool(table.command) == bool(table.url):
        raise HoldfastError(f"the MCP server {name!r} needs either a command or a url")
    transport: StdioTransport | StreamableHttpTransport
    program = ""
    if table.command:
        wrapped = _wrap_command(table.command, sandbox, workspace)
        # In a sandbox the program may lie where we cannot see it.
        program = wrapped[0] if wrapped == list(table.command) else ""
        # The server's standard input ends with this process, even if it is killed. The supervisor
        # ends servers that ignore the end of their input.
        first, *arguments = supervised_command(0, wrapped)
        transport = StdioTransport(
            first, arguments, env=child_environment(table.variables), keep_alive=False
        )
    else:
        transport = StreamableHttpTransport(table.url, auth=_token(name, table))
    return McpServer(ServerTools(transport, id=name), name, program=program)


def _failure(name: str | None, reason: str) -> McpServerFailed:
    return McpServerFailed(f"the MCP server {name!r} failed: {reason}")


def _wrap_command(
    command: Sequence[str], sandbox: Sandbox | None, workspace: Path | None
) -> list[str]:
    """Return the command in its sandbox, which has an empty folder to begin in."""
    if sandbox is None or workspace is None or sandbox.name == "none":
        return list(command)
    workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    program, *arguments = command
    return sandbox.wrap([_find_program(program) or program, *arguments])


def _find_program(program: str) -> str | None:
    return shutil.which(program, path=child_environment(()).get("PATH"))


def _token(name: str, table: McpTable) -> str | None:
    if not table.token_variable:
        return None
    token = variable(table.token_variable)
    if not token:
        raise HoldfastError(
            f"the token of the MCP server {name!r} is missing: {table.token_variable} is not set"
        )
    hide(token)
    return token


def _is_connection_lost(error: BaseException | None) -> bool:
    return isinstance(error, MCPError) and error.error.code == CONNECTION_CLOSED


def _reason(error: Exception) -> str:
    """Return one line that says what went wrong; of a group, its first error."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if _is_connection_lost(error):
        return "it ended before it answered; run its command by hand to see why"
    line = " ".join(str(error).split()).removeprefix("Client failed to connect: ")
    return line or type(error).__name__
