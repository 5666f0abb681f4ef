"""What the tools of a language model may use: the turn, and the app around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from holdfast.agents.base import AgentPolicy, Team
from holdfast.agents.turn import Turn
from holdfast.store import Store


class App(Protocol):
    """Where an agent works."""

    policies: dict[str, AgentPolicy]
    teams: dict[str, Team]

    @property
    def store(self) -> Store: ...


@dataclass(frozen=True, slots=True)
class Context:
    """Given to every tool as `RunContext[Context].deps`, and to reminders."""

    turn: Turn
    app: App

    @property
    def name(self) -> str:
        """What people call the agent."""
        return self.app.policies[self.turn.agent].name or self.turn.agent

    @property
    def teammates(self) -> Mapping[str, str]:
        """The other members of the agent's teams, by id with their names."""
        agent = self.turn.agent
        mates = [
            mate for team in self.app.teams.values() if agent in team.agents for mate in team.agents
        ]
        return {mate: self.app.policies[mate].name or mate for mate in mates if mate != agent}


Reminder = Callable[[Context], Awaitable[str]]
"""Adds to the system prompt of one turn, such as what is remembered of its subject; '' adds nothing."""
