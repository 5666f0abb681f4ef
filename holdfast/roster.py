"""What an app is made of: its agents and how each is run, its teams, channels and hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast.activity import Listener, Listeners
from holdfast.agent import Agent, AgentPolicy, Team
from holdfast.agents.function import Function, FunctionAgent
from holdfast.attachments import Attachments
from holdfast.channel import AnyChannel
from holdfast.channels.heartbeat import PROMPT, Beat
from holdfast.errors import HoldfastError
from holdfast.hook import Hooks, IncomingHook, OutgoingHook
from holdfast.recall import Recall
from holdfast.router import Routing, checked_id
from holdfast.store.base import Store
from holdfast.teamwork import Teamwork
from holdfast.worker import Seat, Worker


class Roster:
    """Filled before anything runs, and not changed after."""

    def __init__(self, *, default: str | None = None) -> None:
        self.agents: dict[str, Agent] = {}
        self.policies: dict[str, AgentPolicy] = {}
        self.teams: dict[str, Team] = {}
        self.channels: dict[str, AnyChannel] = {}
        self.hooks = Hooks()
        self.listeners = Listeners()
        self._default = default
        self._routing: Routing | None = None

    @property
    def default(self) -> str:
        """The agent of messages that name none."""
        return self._default or next(iter(self.agents), "")

    @default.setter
    def default(self, agent: str) -> None:
        self._default = agent
        self._routing = None

    def agent(self, id: str, **policy: Any) -> Callable[[Function], Function]:
        """Decorates a function that answers turns; the rest are fields of AgentPolicy."""

        def register(function: Function) -> Function:
            self.add(id, function, **policy)
            return function

        return register

    def add(self, id: str, agent: Agent | Function, **policy: Any) -> None:
        checked_id(id)
        if id.lower() in map(str.lower, self.agents):
            raise HoldfastError(f"there are two agents named {id!r}")
        self._routing = None
        self.agents[id] = FunctionAgent(agent) if callable(agent) else agent
        if hasattr(agent, "join"):
            agent.join(self)
        # Some kinds of agents are run in their own way, unless told otherwise.
        self.policies[id] = AgentPolicy(**{**getattr(agent, "default_policy", {}), **policy})

    def team(self, id: str, *, name: str | None = None, agents: Sequence[str], leader: str) -> None:
        checked_id(id)
        if id.lower() in map(str.lower, self.teams):
            raise HoldfastError(f"there are two teams named {id!r}")
        if len(set(agents)) < len(agents):
            raise HoldfastError(f"team {id!r} names an agent twice")
        if leader not in agents:
            raise HoldfastError(f"the leader {leader!r} of team {id!r} is not one of its agents")
        self._routing = None
        self.teams[id] = Team(name=name or id, agents=tuple(agents), leader=leader)

    def add_channel(self, channel: AnyChannel) -> None:
        self.channels[channel.name] = channel

    def incoming(self, hook: IncomingHook) -> IncomingHook:
        """Decorates a function that may change a message before its agent sees it. See holdfast.hook.Heard."""
        self.hooks.incoming.append(hook)
        return hook

    def outgoing(self, hook: OutgoingHook) -> OutgoingHook:
        """Decorates a function that may change a reply before it is stored. See holdfast.hook.Said."""
        self.hooks.outgoing.append(hook)
        return hook

    def on(self, kind: str) -> Callable[[Listener], Listener]:
        """Decorates a function that hears what happens in this process, such as "chain_step_done", after it did."""

        def register(listener: Listener) -> Listener:
            self.listeners.add(kind, listener)
            return listener

        return register

    @property
    def routing(self) -> Routing:
        """What must be known to store a message for one of these agents."""
        if self._routing is None:
            self._routing = self._made_routing()
        return self._routing

    def _made_routing(self) -> Routing:
        for id_, team in self.teams.items():
            for agent in team.agents:
                if agent not in self.agents:
                    raise HoldfastError(f"{agent!r} of team {id_!r} is no agent of this app")
        return Routing(
            default=self.default,
            lanes={id_: policy.lane for id_, policy in self.policies.items()},
            attempts={id_: policy.max_attempts for id_, policy in self.policies.items() if policy.max_attempts},
            names={id_: policy.name for id_, policy in self.policies.items() if policy.name},
            teams=dict(self.teams),
        )

    def worker(self, store: Store, files: Path, recall: Recall | None = None) -> Worker:
        """What handles turns for these agents."""
        seats = {
            id_: Seat(agent, policy.timeout, policy.idle, recall if policy.memory else None)
            for id_, agent, policy in ((id_, agent, self.policies[id_]) for id_, agent in self.agents.items())
        }
        return Worker(
            store,
            seats,
            self.default,
            self.hooks,
            Teamwork(self.routing, Attachments(files, self._workspaces()), store),
            self.channels,
        )

    def _workspaces(self) -> dict[str, Path]:
        """The folders of agents that have one of their own."""
        found = {id_: getattr(agent, "workspace", None) for id_, agent in self.agents.items()}
        return {id_: folder for id_, folder in found.items() if isinstance(folder, Path)}

    def beats(self, every: timedelta) -> list[Beat]:
        """Who is asked how often whether there is anything to do, `every` so often unless the agent has its own."""
        often = {id_: every if policy.heartbeat is None else policy.heartbeat for id_, policy in self.policies.items()}
        return [
            Beat(
                agent=id_,
                every=interval,
                prompt=self.policies[id_].heartbeat_prompt or PROMPT,
                targets=self.targets_of(id_),
            )
            for id_, interval in often.items()
            if interval
        ]

    def targets_of(self, agent: str) -> list[str]:
        """Under which targets an agent's messages are stored: '' belongs to the default agent."""
        return [agent, ""] if agent == self.default else [agent]
