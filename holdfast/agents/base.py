"""An agent takes turns and gives replies; what it may do and how it is run is its policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict

from pydantic import ValidationError

from holdfast.agents.turn import Turn
from holdfast.errors import HoldfastError
from holdfast.message import sender_of, text_of
from holdfast.queue.outcome import Dead, Retry, Snooze
from holdfast.settings import DurationLike
from holdfast.settings.agents import RunTable
from holdfast.settings.explain import wrong_option

NO_ANSWER = "(no answer)"
"""What the user hears where an agent has nothing to say and did not choose silence."""

LanePolicy = Literal["conversation", "agent", "none"]
TurnPolicy = Literal["each", "collect"]


@dataclass(frozen=True, slots=True, init=False)
class Reply:
    """An answer to where the message came from: a text, files, or both."""

    text: str
    files: tuple[str, ...]
    """Paths below the files root or the workspace; files of other conversations are refused, as the metadata say."""
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
        # Written past `frozen`, once.
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "files", tuple(map(str, several)))
        object.__setattr__(self, "metadata", {} if metadata is None else metadata)


Answer = str | Reply | Retry | Snooze | Dead | None
"""None: the agent chose silence. An exception is a retry until the attempts are used up."""


class Agent(Protocol):
    """A Python function, a language model, a command-line program."""

    async def answer(self, turn: Turn) -> Answer:
        """Work one turn. It may be worked again after a crash, and is cancelled when its lease is lost."""


class AgentOptions(TypedDict, total=False):
    """Options of `@app.agent` and `app.add`. A duration is a timedelta, a number of seconds, or a text as in TOML."""

    name: str | None
    icon: str | None
    lane: LanePolicy
    turns: TurnPolicy
    max_attempts: int | None
    lease: DurationLike | None
    timeout: DurationLike | None
    idle: DurationLike | None
    concurrency: int | None
    heartbeat: DurationLike | None
    heartbeat_prompt: str | None
    memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPolicy:
    """How an agent is run. None leaves it to the queue's policy."""

    name: str | None = None
    icon: str | None = None
    lane: LanePolicy = "conversation"
    turns: TurnPolicy = "each"
    max_attempts: int | None = None
    lease: timedelta | None = None
    timeout: timedelta | None = None
    idle: timedelta | None = None
    concurrency: int | None = None
    heartbeat: timedelta | None = None
    heartbeat_prompt: str | None = None
    memory: bool = False
    """Whether turns come with what is known of who asks, and may add to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProfile:
    """How channels show an agent: its name, and an emoji or the address of a picture."""

    name: str
    icon: str | None = None


def policy_of(id: str, options: Mapping[str, Any], usual: Mapping[str, Any]) -> AgentPolicy:
    """The policy of an agent: its options, checked as those of holdfast.toml are, over what is usual for its kind."""
    try:
        table = RunTable(**options)
    except ValidationError as error:
        raise HoldfastError(
            f"agent {id!r}: {wrong_option(error.errors(include_url=False)[0], RunTable)}"
        ) from None
    return AgentPolicy(**{**usual, **table.policy()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Agents that know each other; messages to the team go to its leader."""

    name: str
    agents: tuple[str, ...]
    leader: str


def lane_of(agent: str, conversation: str, policy: LanePolicy) -> str | None:
    """The lane of an agent's conversation; agent.lane_of in SQL says the same."""
    match policy:
        case "none":
            return None
        case "agent":
            return agent
        case "conversation":
            return f"{agent}/{conversation}"


def prompt_of(turn: Turn) -> str:
    """The prompt of a turn: its text, or of several collected messages each with the name of its sender."""
    if len(turn.events) == 1:
        return turn.text
    return "\n\n".join(f"{sender_of(event.event)}: {text_of(event)}" for event in turn.events)
