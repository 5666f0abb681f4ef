"""[agents.x] and [teams.x]: who answers, how each is run, and who works together."""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from holdfast.settings.duration import Duration
from holdfast.settings.table import Table

MAX_OUTPUT = 8 * 1024 * 1024
COMMAND_POLICY: dict[str, Any] = {
    "lane": "agent",
    "turns": "collect",
    "timeout": timedelta(minutes=30),
}
"""A program works in one folder, so one run at a time, which takes what waits."""
HISTORY_TOKENS = 8000
MAX_REQUESTS = 50
LLM_POLICY: dict[str, Any] = {"timeout": timedelta(minutes=10), "idle": timedelta(minutes=2)}

SANDBOXES = ("auto", "none", "bubblewrap")

_USER = re.compile(r"user:[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def _id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise ValueError(
            "an id is made of at most 64 small letters, digits, - and _, and begins with a letter or digit"
        )
    return text


Id = Annotated[str, AfterValidator(_id)]
"""What stands after @ in a message, and names a folder."""


def _sandbox(text: str) -> str:
    if text not in SANDBOXES and not _USER.fullmatch(text):
        raise ValueError('a sandbox is "auto", "none", "bubblewrap" or "user:NAME"')
    return text


SandboxName = Annotated[str, AfterValidator(_sandbox)]
"""A kind of sandbox; user:NAME runs programs as another user of the machine."""


class RunTable(Table):
    """How any agent is run; what is not set is decided by its kind."""

    name: str | None = Field(default=None, examples=["Coder"])
    """What people call the agent."""
    icon: str | None = Field(
        default=None,
        pattern=r"^(:[a-z0-9_+'-]{1,100}:|https://\S{1,2000})$",
        examples=[":robot_face:"],
    )
    """Icon of a team member, on channels that show one: :emoji: or an https address."""
    lane: Literal["conversation", "agent", "none"] | None = Field(default=None, examples=["agent"])
    """What is worked in order, one turn at a time: each conversation, all that the agent does, or none."""
    turns: Literal["each", "collect"] | None = Field(default=None, examples=["collect"])
    """Whether a turn takes one message, or all of one conversation that wait in its lane."""
    max_attempts: int | None = Field(default=None, ge=1, examples=[3])
    """Attempts of a message, where the agent has its own."""
    lease: Duration | None = Field(default=None, ge=timedelta(seconds=1), examples=["10 min"])
    """How long a turn is held without a renewal, where the agent has its own."""
    timeout: Duration | None = Field(default=None, gt=timedelta(0), examples=["30 min"])
    """The longest that a turn may take."""
    idle: Duration | None = Field(default=None, gt=timedelta(0), examples=["5 min"])
    """The longest that a turn may take without a sign of work."""
    concurrency: int | None = Field(default=None, ge=1, examples=[2])
    """Turns of the agent at once, over all processes."""
    heartbeat: Duration | None = Field(default=None, examples=["30 min"])
    """How often the agent is asked by itself whether there is anything to do, where it has its own; 0 is never."""
    heartbeat_prompt: str | None = Field(
        default=None, min_length=1, examples=["Look at the build."]
    )
    """What it is asked then."""
    memory: bool | None = Field(default=None, examples=[True])
    """Whether its turns come with what is known of who asks; a language model then has tools to look and to observe."""

    @property
    def runs(self) -> str:
        """What answers, in a word or a line."""
        return ""

    def policy(self) -> dict[str, Any]:
        """What is set of how the agent is run."""
        return {
            name: value
            for name in RunTable.model_fields
            if (value := getattr(self, name)) is not None
        }


class CommandTable(RunTable):
    """An agent that is a command-line program."""

    kind: Literal["command"] = Field(examples=["command"])
    """The message is on its standard input, the answer on its standard output."""
    command: tuple[str, ...] = Field(
        min_length=1, examples=[["claude", "-p", "--output-format", "stream-json", "--verbose"]]
    )
    """The program and its arguments, run in $HOLDFAST_HOME/workspace/<agent>; ./ is the folder of this file."""
    variables: tuple[str, ...] = Field(default=(), examples=[["ANTHROPIC_API_KEY"]])
    """Variables of the environment that it may see beside ordinary ones such as PATH and HOME."""
    max_output: int = Field(default=MAX_OUTPUT, ge=1024)
    """Bytes that it may write before it is stopped."""
    sandbox: SandboxName | None = Field(default=None, examples=["bubblewrap"])
    """Sandbox of this agent; overrides the global one."""
    network: bool = True
    """Whether a program in bubblewrap has the network; without it, not even loopback of this machine."""
    readable: tuple[Path, ...] = Field(default=(), examples=[["/srv/texts"]])
    """Further files and folders that a program in bubblewrap can read; ./ is the folder of this file."""
    writable: tuple[Path, ...] = Field(default=(), examples=[["~/.claude", "~/.claude.json"]])
    """Further files and folders that a program in bubblewrap can write; ./ is the folder of this file."""

    @property
    def runs(self) -> str:
        return shlex.join(self.command)


class LlmTable(RunTable):
    """An agent that is a language model."""

    kind: Literal["llm"] = Field(examples=["llm"])
    """It answers with the conversation before in mind, and may use tools."""
    model: str = Field(examples=["anthropic:claude-sonnet-4-5"])
    """provider:model; "test" answers without a network, "script:my_module:play" is a function that plays a model."""
    prompt: Path | None = Field(default=None, examples=["prompts/writer.md"])
    """The system prompt, a Jinja template; ./ is the folder of this file. By default a few words of our own."""
    history_tokens: int = Field(default=HISTORY_TOKENS, ge=0)
    """About how much of the conversation before it is reminded of; the newest is kept."""
    max_requests: int = Field(default=MAX_REQUESTS, ge=1)
    """Requests to the model in one turn, tools included."""
    tools: tuple[str, ...] = Field(default=(), examples=[["my_module:look_up"]])
    """Python functions that it may call, each module:name."""
    mcp: tuple[str, ...] = Field(default=(), examples=[["files"]])
    """MCP servers whose tools it may call, by the names of their tables."""

    @property
    def runs(self) -> str:
        return self.model


class FunctionTable(RunTable):
    """An agent that is a Python function."""

    kind: Literal["function"] = Field(examples=["function"])
    """It takes a turn and gives a text."""
    function: str = Field(pattern=r"^[\w.]+:[\w.]+$", examples=["my_module:answer"])
    """module:name; the working directory is importable."""

    @property
    def runs(self) -> str:
        return self.function


class EchoTable(RunTable):
    """An agent to try things out."""

    kind: Literal["echo"] = Field(examples=["echo"])
    """It says what it was told."""


AgentTable = Annotated[
    CommandTable | LlmTable | FunctionTable | EchoTable, Field(discriminator="kind")
]


class McpTable(Table):
    """A server of the Model Context Protocol, by command or by address."""

    command: tuple[str, ...] = Field(
        default=(), examples=[["npx", "-y", "@modelcontextprotocol/server-memory"]]
    )
    """The program that is started for a turn, and its arguments."""
    variables: tuple[str, ...] = Field(default=(), examples=[["GITHUB_TOKEN"]])
    """Variables of the environment that it may see beside ordinary ones such as PATH and HOME."""
    sandbox: SandboxName = "none"
    """Sandbox of the command: "bubblewrap", "auto" for bubblewrap where it works, or "none"."""
    network: bool = True
    """Whether the command has the network in bubblewrap."""
    readable: tuple[Path, ...] = Field(default=(), examples=[["/srv/texts"]])
    """Further files and folders that the command can read in bubblewrap; ./ is the folder of this file."""
    writable: tuple[Path, ...] = Field(default=(), examples=[["~/.npm"]])
    """Further files and folders that the command can write in bubblewrap; ./ is the folder of this file."""
    url: str = Field(default="", examples=["http://127.0.0.1:8000/mcp"])
    """Where the server answers, in place of a command."""
    token_variable: str = Field(default="", examples=["FILES_TOKEN"])
    """Variable of the environment that holds the token for that address."""


class TeamTable(Table):
    """Agents that work together."""

    name: str | None = Field(default=None, examples=["Developers"])
    """What people call the team."""
    agents: tuple[Id, ...] = Field(min_length=1, examples=[["coder"]])
    """Its members."""
    leader: Id = Field(examples=["coder"])
    """The member who takes the messages to the team."""
