"""The agent protocol, an agent's options and policy, and its reply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict

from pydantic import ValidationError

from holdfast.agents.turn import Turn, prompt_text
from holdfast.errors import HoldfastError
from holdfast.message import sender_of
from holdfast.queue.outcome import Dead, Retry, Snooze
from holdfast.settings import DurationLike
from holdfast.settings.agents import RunTable
from holdfast.settings.explain import wrong_option

NO_ANSWER = "(no answer)"
"""Answer of an LLM or command agent that produced no text."""

LanePolicy = Literal["conversation", "agent", "none"]
TurnPolicy = Literal["each", "collect"]
WaitPolicy = Literal["hold", "release"]


@dataclass(frozen=True, slots=True, init=False)
class Reply:
    """An answer to the conversation of the message: a text, files, or both."""

    text: str
    files: tuple[str, ...]
    """Paths below the files root or the agent's workspace.

    Files of other conversations are refused."""
    metadata: dict[str, Any]

    def __init__(
        self,
        text: str = "",
        files: str | Path | Iterable[str | Path] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(text, str):
            raise TypeError(
                f"a Reply has a text, not {text!r}; return None instead of a Reply to stay silent"
            )
        several = [files] if isinstance(files, str | Path) else files
        # The class is frozen, so attributes are set past its own check.
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "files", tuple(map(str, several)))
        object.__setattr__(self, "metadata", {} if metadata is None else metadata)


Answer = str | Reply | Retry | Snooze | Dead | None
"""None means that the agent chose silence. An exception is retried while attempts are left."""


class Agent(Protocol):
    """Anything that answers turns: a Python function, a language model, a command-line program."""

    async def answer(self, turn: Turn) -> Answer:
        """Work one turn. A crash repeats it; a lost lease cancels it."""


class AgentOptions(TypedDict, total=False):
    """Options of `@app.agent` and `app.add`.

    A duration is a timedelta, a number of seconds, or a text as in TOML."""

    name: str | None
    description: str | None
    icon: str | None
    lane: LanePolicy
    turns: TurnPolicy
    max_attempts: int | None
    lease: DurationLike | None
    timeout: DurationLike | None
    idle: DurationLike | None
    concurrency: int | None
    while_waiting: WaitPolicy
    heartbeat: DurationLike | None
    heartbeat_prompt: str | None
    memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPolicy:
    """How an agent is run. None means that the queue's policy decides."""

    name: str | None = None
    description: str | None = None
    """Purpose of the agent, for people who choose one."""
    icon: str | None = None
    lane: LanePolicy = "conversation"
    turns: TurnPolicy = "each"
    max_attempts: int | None = None
    lease: timedelta | None = None
    timeout: timedelta | None = None
    idle: timedelta | None = None
    concurrency: int | None = None
    while_waiting: WaitPolicy = "hold"
    heartbeat: timedelta | None = None
    heartbeat_prompt: str | None = None
    memory: bool = False
    """Whether turns can read and add to the memory of their sender."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProfile:
    """How channels show an agent: its name, and an emoji or the address of a picture."""

    name: str
    icon: str | None = None


def policy_of(id: str, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> AgentPolicy:
    """Build the policy of an agent from the defaults of its kind and its own options.

    The options are checked like those of holdfast.toml. Raises HoldfastError for a wrong one."""
    try:
        table = RunTable(**options)
    except ValidationError as error:
        raise HoldfastError(
            f"agent {id!r}: {wrong_option(error.errors(include_url=False)[0], RunTable)}"
        ) from None
    return AgentPolicy(**{**defaults, **table.policy()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Agents that can hand work to each other. Messages to the team go to its leader."""

    name: str
    agents: tuple[str, ...]
    leader: str
    description: str = ""


def lane_of(agent: str, conversation: str, policy: LanePolicy) -> str | None:
    """Return the lane of an agent's conversation, as agent.lane_of in SQL does."""
    match policy:
        case "none":
            return None
        case "agent":
            return agent
        case "conversation":
            return f"{agent}/{conversation}"


def prompt_of(turn: Turn) -> str:
    """Return the prompt of a turn, with the frame of hand-offs.

    With several collected messages, the name of its sender precedes each of them."""
    if len(turn.events) == 1:
        return prompt_text(turn.primary)
    return "\n\n".join(f"{sender_of(event.event)}: {prompt_text(event)}" for event in turn.events)
