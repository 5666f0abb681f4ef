"""Agents and teams of holdfast.toml, run by `holdfast up`, listed by `holdfast agents`."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from tests.agents.commands import Scripts
from tests.cli.shell import Shell

APP = """
from holdfast import AgentHarness, Turn

app = AgentHarness()

@app.agent("writer")
async def writer(turn: Turn) -> str:
    return f"written: {turn.text}"
"""
CODER = """
[agents.coder]
kind = "command"
name = "Coder"
command = ["./scripts/agent.sh"]
variables = ["MARK"]
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_up_runs_the_agents_of_the_file(shell: Shell, scripts: Scripts) -> None:
    scripts.write("echo coded:; cat")
    shell.environment["MARK"] = scripts.mark
    shell.write(
        "holdfast.toml",
        f"{CODER}\n[agents.parrot]\nkind = 'echo'\n"
        "[teams.dev]\nagents = ['coder', 'parrot']\nleader = 'parrot'\n",
    )
    with shell.running("up", "--port", "0") as up:
        assert "agents coder, parrot" in up.ready
        assert shell.out("send", "hello", "--wait") == "coded:\nhello\n"
        assert shell.out("send", "hello", "--wait", "--agent", "dev") == "you said hello\n"
        coder, parrot = shell.json("agents")
    assert (coder["name"], coder["kind"], coder["runs"]) == (
        "Coder",
        "command",
        "./scripts/agent.sh",
    )
    assert (coder["default"], coder["lane"], coder["teams"]) == (True, "agent", ["dev"])
    assert (parrot["kind"], parrot["lane"]) == ("echo", "conversation")


def test_they_join_those_of_an_app(shell: Shell) -> None:
    shell.write("my_app.py", APP)
    shell.write(
        "other.toml",
        "default = 'parrot'\n[agents.parrot]\nkind = 'echo'\n"
        "[agents.copy]\nkind = 'function'\nfunction = 'my_app:writer'\n",
    )
    with shell.running("work", "--app", "my_app:app", "--config", "other.toml") as work:
        assert "agents writer, parrot, copy" in work.ready
        assert shell.out("send", "hello", "--wait") == "you said hello\n"
        assert shell.out("send", "hello", "--wait", "--agent", "copy") == "written: hello\n"
        assert [row["kind"] for row in shell.json("agents")] == ["function", "function", "function"]
        assert "function" in shell.out("agents", "--config", "other.toml")


MODEL = """
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from holdfast.agents.llm import Context

def play(messages, info):
    returned = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if returned:
        return f"{messages[-1].instructions}: {returned}"
    tools = sorted(tool.name for tool in info.function_tools)
    return ModelResponse(parts=[ToolCallPart(tool, {"text": "hello"}) for tool in tools])

async def whisper(context: RunContext[Context], text: str) -> str:
    return f"({text} {context.deps.turn.sender})"
"""
WRITER = f"""
[agents.writer]
kind = "llm"
name = "Writer"
model = "script:my_model:play"
prompt = "prompts/writer.md"
tools = ["my_model:whisper"]
mcp = ["loud"]

[mcp.loud]
command = ["{sys.executable}", "{Path(__file__).parent / "mcp_server.py"}"]
variables = ["SECRET_ONE"]
"""


def test_a_language_model_has_its_prompt_tools_and_mcp_servers_from_the_file(shell: Shell) -> None:
    shell.write("my_model.py", MODEL)
    (shell.folder / "prompts").mkdir()
    shell.write("prompts/writer.md", "I am {{ name }}")
    shell.write("holdfast.toml", WRITER)
    shell.environment |= {"SECRET_ONE": "1", "SECRET_TWO": "2"}
    with shell.running("work") as work:
        reply = shell.out("send", "hello", "--wait", "--sender", "ann")
        assert reply == "I am Writer: [\"HELLO ['SECRET_ONE']\", '(hello ann)']\n", work.log
        assert [(row["kind"], row["runs"]) for row in shell.json("agents")] == [
            ("llm", "script:my_model:play")
        ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[agents.x]\nmodel = 'y'", r"holdfast.toml:1: agents.x.kind: this key is required"),
        (
            "[agents.x]\nkind = 'robot'",
            r"holdfast.toml:2: agents.x.kind: .*'command', 'llm', 'function', 'echo'"
            r" \(it is 'robot'\)",
        ),
        (
            "[agents.x]\nkind = 'command'",
            r"holdfast.toml:1: agents.x.command: this key is required",
        ),
        (
            "[agents.x]\nkind = 'echo'\nlan = 'agent'",
            r"holdfast.toml:3: there is no setting agents.x.lan; did you mean lane\?",
        ),
        (
            "[agents.x]\nkind = 'echo'\ntimeout = 'soon'",
            r"holdfast.toml:3: agents.x.timeout: a duration is .*'soon'",
        ),
        (
            "[agents.X]\nkind = 'echo'",
            r"holdfast.toml:1: agents.X: an id has at most 64 characters",
        ),
        (
            "[agents.x]\nkind = 'command'\ncommand = ['nosuch']",
            r"holdfast.toml:3: agents.x.command: there is no program 'nosuch'",
        ),
        (
            "[agents.x]\nkind = 'function'\nfunction = 'nosuch:f'",
            r"holdfast.toml:3: agents.x.function: there is no module 'nosuch'",
        ),
        (
            "[agents.x]\nkind = 'llm'\nmodel = 'gpt'",
            r"holdfast.toml:3: agents.x.model: a model is named",
        ),
        (
            "[agents.x]\nkind = 'llm'\nmodel = 'test'\nmcp = ['y']",
            r"holdfast.toml:4: agents.x.mcp: .*\[mcp.y\]; known are: none",
        ),
        (
            "[agents.x]\nkind = 'llm'\nmodel = 'test'\nprompt = 'no.md'",
            r"holdfast.toml:4: agents.x.prompt: .*no.md cannot be read",
        ),
        (
            "default = 'y'\n[agents.x]\nkind = 'echo'",
            r"holdfast.toml:1: default: there is no agent named 'y'; known are: x",
        ),
        (
            "[agents.x]\nkind = 'echo'\n[teams.t]\nagents = ['y']\nleader = 'y'",
            r"holdfast.toml:4: teams.t.agents: there is no agent named 'y'",
        ),
        (
            "[agents.x]\nkind = 'echo'\n[teams.t]\nagents = ['x', 'x']\nleader = 'x'",
            r"holdfast.toml:4: teams.t.agents: team 't' names an agent twice",
        ),
        (
            "[agents.x]\nkind = 'echo'\n[teams.t]\nagents = ['x']\nleader = 'y'",
            r"holdfast.toml:5: teams.t.leader: 'y' is not one of its agents: x",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(shell: Shell, text: str, problem: str) -> None:
    shell.write("holdfast.toml", text)
    line = shell.refused("up")
    assert re.search(problem, line), line
    assert not (shell.folder / ".holdfast").exists()


def test_a_killed_worker_leaves_no_child(shell: Shell, scripts: Scripts) -> None:
    scripts.write(
        "trap '' TERM; sleep 1000 & (setsid sh -c 'trap \"\" TERM; sleep 1001' &) ; "
        "while :; do sleep 0.1; done"
    )
    shell.environment["MARK"] = scripts.mark
    shell.write("holdfast.toml", CODER)
    with shell.running("work") as work:
        shell.out("send", "hello")
        assert scripts.until(lambda left: {"sleep 1000 ", "sleep 1001 "} <= set(left.values()))
        work.signal(signal.SIGKILL)
        work.end()
        assert scripts.until(lambda left: not left), scripts.left()
