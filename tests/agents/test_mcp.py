"""MCP servers that fail are named in the turn's error, the log, the dead letter and doctor."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from holdfast import Retry
from holdfast.agents.llm import McpServerFailed, server_of
from holdfast.settings.agents import McpTable
from holdfast.telemetry import redaction
from tests.agents.playing import app_of, prompt_text, send_all, text
from tests.cli.shell import Shell

PROGRAM = str(Path(__file__).parent / "mcp_server.py")
BROKEN = """
[agents.writer]
kind = "llm"
model = "test"
max_attempts = 1
mcp = ["loud"]

[mcp.loud]
command = ["no-such-program", "--token", "x"]
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def command(*arguments: str) -> McpTable:
    return McpTable(command=(sys.executable, PROGRAM, *arguments))


def call_tool(messages: list[ModelMessage], info: AgentInfo) -> Any:
    """Play a model that calls its first tool with the user's text until the tool has returned."""
    if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return prompt_text(messages[-1:])
    tool = info.function_tools[0]
    return ModelResponse(parts=[ToolCallPart(tool.name, {"text": prompt_text(messages[:1])})])


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (McpTable(command=("no-such-program",)), "there is no program 'no-such-program'"),
        (McpTable(command=("/bin/false",)), "it ended before it answered"),
        (McpTable(url="http://127.0.0.1:9/mcp"), "All connection attempts failed"),
        (command("dies"), "it closed the connection"),
    ],
)
async def test_a_server_that_fails_is_named_in_the_error_of_the_turn(
    table: McpTable, reason: str
) -> None:
    [outcome] = await send_all(app_of(call_tool, toolsets=[server_of("loud", table)]), "hello")
    assert isinstance(outcome, Retry)
    assert outcome.error_class == "McpServerFailed"
    assert f"the MCP server 'loud' failed: {reason}" in str(outcome.error)


async def test_an_error_of_a_tool_is_for_the_model_and_no_failure_of_the_server() -> None:
    def play(messages: list[ModelMessage], info: AgentInfo) -> Any:
        if len(messages) > 1:
            return prompt_text(messages[-1:])
        return call_tool(messages, info)

    [outcome] = await send_all(app_of(play, toolsets=[server_of("loud", command())]), "refuse")
    assert "no refusing" in text(outcome)


def test_the_token_of_a_server_is_redacted_whatever_it_looks_like(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redaction, "_secrets", [])
    monkeypatch.setenv("LOUD_TOKEN", "precious")
    server_of("loud", McpTable(url="http://127.0.0.1:9/mcp", token_variable="LOUD_TOKEN"))
    assert redaction.redact("401 for precious") == "401 for ***"


async def test_the_check_lists_the_tools() -> None:
    assert await server_of("loud", command()).check() == ["shout"]


async def test_the_check_of_a_server_that_hangs_ends() -> None:
    with pytest.raises(
        McpServerFailed, match=r"the MCP server 'loud' failed: no answer within 1 s"
    ):
        await server_of("loud", command("hangs")).check(within=1.0)


def test_log_and_dead_letter_name_a_server_that_fails(shell: Shell) -> None:
    shell.write("holdfast.toml", BROKEN)
    with shell.running("work") as work:
        done = shell.run("send", "hello", "--agent", "writer", "--wait")
        assert done.returncode == 1
        assert "the MCP server 'loud' failed: there is no program 'no-such-program'" in work.log
    [letter] = shell.json("dead", "list")
    assert "the MCP server 'loud' failed" in str(letter)


def test_doctor_says_of_each_server_whether_it_answers(shell: Shell) -> None:
    shell.write(
        "holdfast.toml",
        f'{BROKEN}\n[mcp.good]\ncommand = ["{sys.executable}", "{PROGRAM}"]\n',
    )
    done = shell.run("doctor", "--json")
    assert done.returncode == 1
    lines = {
        line["name"]: (line["state"], line["detail"])
        for line in json.loads(done.stdout)
        if line["name"].startswith("MCP")
    }
    assert lines == {
        "MCP server loud": (
            "fail",
            "the MCP server 'loud' failed: there is no program 'no-such-program'",
        ),
        "MCP server good": ("ok", "answers, tools shout"),
    }
