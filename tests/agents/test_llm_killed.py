"""A worker that is killed in a tool call: the next one makes only the missing requests."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from tests.agents.dialects import Call, OpenAiChat
from tests.agents.provider_server import serving
from tests.channels.crashes import without_grace
from tests.cli.shell import Shell, eventually
from tests.steps import both_engines

KILLED_IN = 3
"""The tool call in which the worker is killed."""
SERVER = [str(Path(__file__).parent / "mcp_server.py"), "counts", "calls.txt", str(KILLED_IN)]
TOOLS = f"""
from tests.agents.mcp_server import count

def shout(text: str) -> str:
    "Say it loud."
    return count("calls.txt", hang_in={KILLED_IN})
"""
OWN_AGENT = f"""
import os, sys

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from holdfast import AgentHarness, Turn
from holdfast.agents.llm import HoldfastDurability
from my_tools import shout

transport = StdioTransport(sys.executable, {SERVER!r}, keep_alive=False)
server = MCPToolset(transport, id="loud")
given = {{"toolsets": [server]}} if os.environ["MCP"] else {{"tools": [shout]}}
helper = Agent(
    OpenAIChatModel("fake", provider=OpenAIProvider(os.environ["URL"], "sk-local")),
    name="helper",
    capabilities=[HoldfastDurability(stream=True)],
    **given,
)
app = AgentHarness()

@app.agent("worker")
async def worker(turn: Turn) -> None:
    await helper.run(turn.text)
"""
LLM_AGENT = """
[agents.worker]
kind = "llm"
model = "local:fake"
{given}

[providers.local]
kind = "openai-chat"
base_url = "{url}"
key_variable = "LOCAL_KEY"

[mcp.loud]
command = {command}
"""


@pytest.mark.sweep(2)
@both_engines
@pytest.mark.parametrize(
    ("is_own", "is_mcp"),
    [
        pytest.param(False, True, id="llm-mcp"),
        pytest.param(True, False, id="own-function"),
        pytest.param(False, False, id="llm-function", marks=pytest.mark.chaos),
        pytest.param(True, True, id="own-mcp", marks=pytest.mark.chaos),
    ],
)
async def test_killed_in_its_third_tool_call_the_next_worker_makes_only_the_missing_requests(
    database_url: str, tmp_path: Path, is_own: bool, is_mcp: bool
) -> None:
    without_grace(database_url)
    shell = Shell(tmp_path, database_url)
    name = "loud_shout" if is_mcp and not is_own else "shout"
    replies = [Call(name, {"text": str(number)}) for number in range(4)]
    async with serving(OpenAiChat(), *replies, "all four are done") as server:
        shell.environment |= {"LOCAL_KEY": "k", "URL": server.url, "MCP": "yes" if is_mcp else ""}
        shell.write("my_tools.py", TOOLS)
        if is_own:
            shell.write("my_app.py", OWN_AGENT)
        else:
            given = 'mcp = ["loud"]' if is_mcp else 'tools = ["my_tools:shout"]'
            command = json.dumps([sys.executable, *SERVER])
            shell.write(
                "holdfast.toml", LLM_AGENT.format(given=given, url=server.url, command=command)
            )
        await asyncio.to_thread(shell.run, "migrate")
        options = ["--app", "my_app:app"] if is_own else []
        answer, _ = await asyncio.gather(
            asyncio.to_thread(shell.out, "send", "shout", "--wait"),
            asyncio.to_thread(kill_the_first_of_two_workers, shell, options),
        )
    assert answer == "all four are done\n"
    assert len(server.requests) == 5
    # The third call was repeated, since nothing of it was recorded.
    assert (tmp_path / "calls.txt").read_text().split() == ["1", "2", "3", "4", "5"]


def kill_the_first_of_two_workers(shell: Shell, options: list[str]) -> None:
    calls = shell.folder / "calls.txt"

    def has_calls(number: int) -> bool:
        return calls.exists() and len(calls.read_text().split()) == number

    with shell.running("work", *options) as first:
        eventually(lambda: has_calls(KILLED_IN))
        first.signal(signal.SIGKILL)
        first.end()
    with shell.running("work", *options) as second:
        eventually(lambda: has_calls(5))
        second.signal()
        second.end()
