"""[agents.x] and [teams.x]: who answers, how each is run, and who works together."""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from holdfast.settings.duration import Duration
from holdfast.settings.table import Table

MAX_OUTPUT = 8 * 1024 * 1024
COMMAND_POLICY: dict[str, Any] = {"lane": "agent", "turns": "collect", "timeout": timedelta(minutes=30)}
"""A program works in one folder, so one run at a time, which takes what waits."""
LLM_POLICY: dict[str, Any] = {"timeout": timedelta(minutes=10), "idle": timedelta(minutes=2)}

_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def _id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise ValueError(
            "an id is made of at most 64 small letters, digits, - and _, and begins with a letter or digit"
        )
    return text


Id = Annotated[str, AfterValidator(_id)]
"""What stands after @ in a message, and names a folder."""


class RunTable(Table):
    """How any agent is run; what is not set is decided by its kind."""

    name: str | None = Field(default=None, examples=["Coder"])
    """What people call the agent."""
    lane: Literal["conversation", "agent", "none"] | None = Field(default=None, examples=["agent"])
    """What is worked in order, one turn at a time: each conversation, all that the agent does, or none."""
    turns: Literal["each", "collect"] | None = Field(default=None, examples=["collect"])
    """Whether a turn takes one message, or all that wait in its lane."""
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
    heartbeat_prompt: str | None = Field(default=None, min_length=1, examples=["Look at the build."])
    """What it is asked then."""

    @property
    def runs(self) -> str:
        """What answers, in a word or a line."""
        return ""

    def policy(self) -> dict[str, Any]:
        """What is set of how the agent is run."""
        return {name: value for name in RunTable.model_fields if (value := getattr(self, name)) is not None}


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

    @property
    def runs(self) -> str:
        return shlex.join(self.command)


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


AgentTable = Annotated[CommandTable | FunctionTable | EchoTable, Field(discriminator="kind")]


class TeamTable(Table):
    """Agents that work together."""

    name: str | None = Field(default=None, examples=["Developers"])
    """What people call the team."""
    agents: tuple[Id, ...] = Field(min_length=1, examples=[["coder"]])
    """Its members."""
    leader: Id = Field(examples=["coder"])
    """The member who takes the messages to the team."""
