"""Tools of MCP servers, started or asked for each turn anew, so that one that hangs or dies harms one turn."""

from __future__ import annotations

from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.toolsets import AbstractToolset

from holdfast.agents.llm.context import Context
from holdfast.agents.supervisor import supervised
from holdfast.errors import HoldfastError
from holdfast.settings.agents import McpTable
from holdfast.settings.environment import passed_on, variable


def server_of(name: str, table: McpTable) -> AbstractToolset[Context]:
    """The tools of a server, each with the server's name before its own."""
    if bool(table.command) == bool(table.url):
        raise HoldfastError(f"the MCP server {name!r} needs either a command or a url")
    transport: StdioTransport | StreamableHttpTransport
    if table.command:
        # Its standard input ends with us, also where we are killed; a server that does not mind is ended, too.
        program, *arguments = supervised(0, table.command)
        transport = StdioTransport(program, arguments, env=passed_on(table.variables), keep_alive=False)
    else:
        transport = StreamableHttpTransport(table.url, auth=_token(name, table))
    return MCPToolset[Context](transport, id=name).prefixed(name)


def _token(name: str, table: McpTable) -> str | None:
    if not table.token_variable:
        return None
    token = variable(table.token_variable)
    if not token:
        raise HoldfastError(f"the token of the MCP server {name!r} is missing: {table.token_variable} is not set")
    return token
