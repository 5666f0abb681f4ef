"""[agents.x], [mcp.x] and [teams.x]: agents, tool servers and teams."""

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
APPROVAL = timedelta(hours=1)
COMMAND_POLICY: dict[str, Any] = {
    "lane": "agent",
    "turns": "collect",
    "timeout": timedelta(minutes=30),
}
"""A program has one folder: run once at a time, with all waiting messages of a conversation."""
HISTORY_TOKENS = 8000
MAX_REQUESTS = 50
LLM_POLICY: dict[str, Any] = {"timeout": timedelta(minutes=10), "idle": timedelta(minutes=2)}

SANDBOXES = ("auto", "none", "bubblewrap")

_USER = re.compile(r"user:[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def _id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise ValueError(
            "an id has at most 64 characters: small letters, digits, - and _;"
            " it begins with a letter or digit"
        )
    return text


Id = Annotated[str, AfterValidator(_id)]
"""The name after @ in a message; also the name of a folder."""


def _sandbox(text: str) -> str:
    if text not in SANDBOXES and not _USER.fullmatch(text):
        raise ValueError('a sandbox is "auto", "none", "bubblewrap" or "user:NAME"')
    return text


SandboxName = Annotated[str, AfterValidator(_sandbox)]
"""A kind of sandbox; user:NAME runs programs as another user of the machine."""


class RunTable(Table):
    """Settings of every kind of agent; each kind has its own defaults."""

    name: str | None = Field(default=None, examples=["Coder"])
    """Display name of the agent."""
    description: str | None = Field(
        default=None, max_length=500, examples=["Writes and fixes code"]
    )
    """Description for people who choose an agent, on one line."""
    icon: str | None = Field(
        default=None,
        pattern=r"^(:[a-z0-9_+'-]{1,100}:|https://\S{1,2000})$",
        examples=[":robot_face:"],
    )
    """Icon of a team member, on channels that show one: :emoji: or an https address."""
    lane: Literal["conversation", "agent", "none"] | None = Field(default=None, examples=["agent"])
    """Scope in which turns run one at a time, in order: each conversation, the whole agent, or
    none."""
    turns: Literal["each", "collect"] | None = Field(default=None, examples=["collect"])
    """Messages in a turn: one each, or collect all of a conversation that wait in the lane."""
    max_attempts: int | None = Field(default=None, ge=1, examples=[3])
    """Maximum attempts of a message; overrides the global setting."""
    lease: Duration | None = Field(default=None, ge=timedelta(seconds=1), examples=["10 min"])
    """Lease of a turn; overrides the global setting."""
    timeout: Duration | None = Field(default=None, gt=timedelta(0), examples=["30 min"])
    """Maximum duration of a turn."""
    idle: Duration | None = Field(default=None, gt=timedelta(0), examples=["5 min"])
    """Maximum time of a turn without output or another sign of progress."""
    concurrency: int | None = Field(default=None, ge=1, examples=[2])
    """Maximum concurrent turns of the agent, over all processes."""
    while_waiting: Literal["hold", "release"] | None = Field(default=None, examples=["release"])
    """The lane of a turn that sleeps or waits for a signal: hold it, or release it for the messages
    that follow."""
    heartbeat: Duration | None = Field(default=None, examples=["30 min"])
    """Interval between heartbeat prompts to this agent; overrides the global one. 0 turns them
    off."""
    heartbeat_prompt: str | None = Field(
        default=None, min_length=1, examples=["Look at the build."]
    )
    """Text of the heartbeat prompt."""
    memory: bool | None = Field(default=None, examples=[True])
    """Give each turn what is remembered about the sender; a language model also gets tools to
    search and observe."""

    @property
    def runs(self) -> str:
        """The model, command or function, in one line."""
        return ""

    def policy(self) -> dict[str, Any]:
        """Return the options that are set."""
        return {
            name: value
            for name in RunTable.model_fields
            if (value := getattr(self, name)) is not None
        }


class CommandTable(RunTable):
    """An agent that is a command-line program."""

    kind: Literal["command"] = Field(examples=["command"])
    """Runs a program: the message on its standard input, the answer from its standard output."""
    command: tuple[str, ...] = Field(
        min_length=1, examples=[["claude", "-p", "--output-format", "stream-json", "--verbose"]]
    )
    """Program and arguments, run in the agent's folder in `workspaces`; ./ is the folder of this
    file."""
    variables: tuple[str, ...] = Field(default=(), examples=[["ANTHROPIC_API_KEY"]])
    """Environment variables that the program gets, beside ordinary ones such as PATH and HOME."""
    protocol: Literal["text", "acp"] = "text"
    """Way to speak to the program: "text", or "acp" for the Agent Client Protocol, with streamed
    answers, permissions that people give, and sessions."""
    approval: Duration = Field(default=APPROVAL, gt=timedelta(0))
    """Maximum wait for a permission that an "acp" program asks for; then it is refused."""
    max_output: int = Field(default=MAX_OUTPUT, ge=1024)
    """Maximum bytes of output; more stops the program."""
    sandbox: SandboxName | None = Field(default=None, examples=["bubblewrap"])
    """Sandbox of this agent; overrides the global setting."""
    network: bool = True
    """Give a program in bubblewrap network access; without it, not even loopback works."""
    readable: tuple[Path, ...] = Field(default=(), examples=[["/srv/texts"]])
    """Additional files and folders that a program in bubblewrap can read; ./ is the folder of
    this file."""
    writable: tuple[Path, ...] = Field(default=(), examples=[["~/.claude", "~/.claude.json"]])
    """Additional files and folders that a program in bubblewrap can write; ./ is the folder of
    this file."""

    @property
    def runs(self) -> str:
        return shlex.join(self.command)


class LlmTable(RunTable):
    """An agent that is a language model."""

    kind: Literal["llm"] = Field(examples=["llm"])
    """Asks a language model, with the conversation so far and with tools."""
    model: str = Field(examples=["anthropic:claude-sonnet-4-5"])
    """provider:model. "test" needs no network; "script:my_module:play" is a function that plays a
    model."""
    prompt: Path | None = Field(default=None, examples=["prompts/writer.md"])
    """File with the system prompt, a Jinja template; ./ is the folder of this file. The default is
    a short prompt of our own."""
    history_tokens: int = Field(default=HISTORY_TOKENS, ge=0)
    """Approximate maximum of tokens from the conversation so far; the newest messages are kept."""
    max_requests: int = Field(default=MAX_REQUESTS, ge=1)
    """Maximum requests to the model in one turn, including those after tool calls."""
    stream: bool = True
    """Show the answer while the model writes it, with what it says between tool calls. Without it,
    only the final answer is sent."""
    tools: tuple[str, ...] = Field(default=(), examples=[["my_module:look_up"]])
    """Python functions that the model may call, each module:name."""
    schedules: int = Field(default=0, ge=0)
    """Schedules that the model may have in each conversation, by its tool `schedule`; 0 turns the
    tool off."""
    mcp: tuple[str, ...] = Field(default=(), examples=[["files"]])
    """MCP servers whose tools the model may call, by the names of their tables."""

    @property
    def runs(self) -> str:
        return self.model


class FunctionTable(RunTable):
    """An agent that is a Python function."""

    kind: Literal["function"] = Field(examples=["function"])
    """Calls a Python function with the turn; it returns the answer."""
    function: str = Field(pattern=r"^[\w.]+:[\w.]+$", examples=["my_module:answer"])
    """module:name of the function; the working directory is importable."""

    @property
    def runs(self) -> str:
        return self.function


class EchoTable(RunTable):
    """An agent for trying things out."""

    kind: Literal["echo"] = Field(examples=["echo"])
    """Repeats each message."""


AgentTable = Annotated[
    CommandTable | LlmTable | FunctionTable | EchoTable, Field(discriminator="kind")
]


class McpTable(Table):
    """A server of the Model Context Protocol: a command or a URL."""

    command: tuple[str, ...] = Field(
        default=(), examples=[["npx", "-y", "@modelcontextprotocol/server-memory"]]
    )
    """Program and arguments, started for each turn."""
    variables: tuple[str, ...] = Field(default=(), examples=[["GITHUB_TOKEN"]])
    """Environment variables that the program gets, beside ordinary ones such as PATH and HOME."""
    sandbox: SandboxName = "none"
    """Sandbox of the command: "bubblewrap", "auto" for bubblewrap if it works, or "none"."""
    network: bool = True
    """Give the command network access in bubblewrap."""
    readable: tuple[Path, ...] = Field(default=(), examples=[["/srv/texts"]])
    """Additional files and folders that the command can read in bubblewrap; ./ is the folder of
    this file."""
    writable: tuple[Path, ...] = Field(default=(), examples=[["~/.npm"]])
    """Additional files and folders that the command can write in bubblewrap; ./ is the folder of
    this file."""
    url: str = Field(default="", examples=["http://127.0.0.1:8000/mcp"])
    """URL of a running server, instead of a command."""
    token_variable: str = Field(default="", examples=["FILES_TOKEN"])
    """Environment variable with the token for that URL."""


class TeamTable(Table):
    """Agents that work together."""

    name: str | None = Field(default=None, examples=["Developers"])
    """Display name of the team."""
    description: str | None = Field(
        default=None, max_length=500, examples=["Build and test the product"]
    )
    """Description for people who choose a team, on one line."""
    agents: tuple[Id, ...] = Field(min_length=1, examples=[["coder"]])
    """Members of the team."""
    leader: Id = Field(examples=["coder"])
    """Member that receives messages to the team."""
