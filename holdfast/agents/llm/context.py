"""Context of a run: the turn, and the app around it. Tools and reminders get it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from holdfast.agents.base import AgentPolicy, Team
from holdfast.agents.turn import Turn
from holdfast.store import Store


class App(Protocol):
    """The part of an app that an LLM agent uses."""

    policies: dict[str, AgentPolicy]
    teams: dict[str, Team]

    @property
    def store(self) -> Store: ...


@dataclass(frozen=True, slots=True)
class Context:
    """Passed to every tool as `RunContext[Context].deps`, and to reminders."""

    turn: Turn
    app: App

    @property
    def name(self) -> str:
        """The display name of the agent."""
        return self.app.policies[self.turn.agent].name or self.turn.agent

    @property
    def teammates(self) -> Mapping[str, str]:
        """Names of the other members of the agent's teams, by id."""
        agent = self.turn.agent
        mates = [
            mate for team in self.app.teams.values() if agent in team.agents for mate in team.agents
        ]
        return {mate: self.app.policies[mate].name or mate for mate in mates if mate != agent}


Reminder = Callable[[Context], Awaitable[str]]
"""Returns a text for the system prompt of one turn, such as memories; '' adds nothing."""
