"""What an app is made of: its agents and how each is run, its teams, channels and hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeVar, overload

from typing_extensions import Unpack

from holdfast.activity.reporter import Listener, Listeners
from holdfast.agents.base import Agent, AgentOptions, AgentPolicy, Team, policy_of
from holdfast.agents.function import Function, FunctionAgent
from holdfast.channels.base import Channel, ChannelLike, as_channel
from holdfast.channels.heartbeat import PROMPT, Heartbeat
from holdfast.consumers.inbox import Seat, Worker
from holdfast.errors import HoldfastError
from holdfast.memory.recall import Recall
from holdfast.queue.store import Store
from holdfast.routing.files import Attachments
from holdfast.routing.handoff import Teamwork
from holdfast.routing.hooks import Hooks, IncomingHook, OutgoingHook
from holdfast.routing.router import Routing, checked_id

F = TypeVar("F", bound=Function)


class Roster:
    """Filled before anything runs, and not changed after."""

    def __init__(self, *, default: str | None = None) -> None:
        self.agents: dict[str, Agent] = {}
        self.policies: dict[str, AgentPolicy] = {}
        self.teams: dict[str, Team] = {}
        self.channels: dict[str, Channel] = {}
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

    @overload
    def agent(self, id: F, /) -> F: ...

    @overload
    def agent(self, id: str | None = None, **options: Unpack[AgentOptions]) -> Callable[[F], F]: ...

    def agent(
        self, id: str | F | None = None, **options: Unpack[AgentOptions]
    ) -> F | Callable[[F], F]:
        """Decorate a function that answers turns. Without an id, the agent has the function's name."""
        if callable(id):
            return self._named_after(id)

        def register(function: F) -> F:
            if id is None:
                return self._named_after(function, **options)
            self.add(id, function, **options)
            return function

        return register

    def _named_after(self, function: F, **options: Unpack[AgentOptions]) -> F:
        self.add(getattr(function, "__name__", ""), function, **options)
        return function

    def add(self, id: str, agent: Agent | Function, **options: Unpack[AgentOptions]) -> None:
        """Add an agent: a function, or an object whose `answer` takes a turn."""
        checked_id(id)
        if id.lower() in map(str.lower, self.agents):
            raise HoldfastError(f"there are two agents named {id!r}")
        _check_takes_a_turn(id, agent)
        # Some kinds of agents are run in their own way, unless told otherwise.
        self.policies[id] = policy_of(id, options, getattr(agent, "default_policy", {}))
        self._routing = None
        self.agents[id] = FunctionAgent(agent) if callable(agent) else agent
        if hasattr(agent, "join"):
            agent.join(self)

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

    def add_channel(self, channel: Channel | ChannelLike) -> None:
        known = as_channel(channel)
        self.channels[known.name] = known

    def incoming(self, hook: IncomingHook) -> IncomingHook:
        """Decorates a function that may change a message before its agent sees it. See holdfast.routing.hooks.Heard."""
        self.hooks.incoming.append(hook)
        return hook

    def outgoing(self, hook: OutgoingHook) -> OutgoingHook:
        """Decorates a function that may change a reply before it is stored. See holdfast.routing.hooks.Said."""
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

    def check(self) -> None:
        """Refuse what could not work, before anything runs."""
        if self._default and self._default not in self.agents:
            has = f"it has {', '.join(self.agents)}" if self.agents else "it has none"
            raise HoldfastError(
                f"the default agent {self._default!r} is no agent of this app: {has}"
            )
        self._routing = self._made_routing()

    def _made_routing(self) -> Routing:
        for id_, team in self.teams.items():
            for agent in team.agents:
                if agent not in self.agents:
                    raise HoldfastError(f"{agent!r} of team {id_!r} is no agent of this app")
        return Routing(
            default=self.default,
            lanes={id_: policy.lane for id_, policy in self.policies.items()},
            attempts={
                id_: policy.max_attempts
                for id_, policy in self.policies.items()
                if policy.max_attempts
            },
            names={id_: policy.name for id_, policy in self.policies.items() if policy.name},
            teams=dict(self.teams),
            limits={
                id_: policy.concurrency
                for id_, policy in self.policies.items()
                if policy.concurrency
            },
            kinds={id_: getattr(agent, "kind", "agent") for id_, agent in self.agents.items()},
        )

    def worker(self, store: Store, files: Path, recall: Recall | None = None) -> Worker:
        """What handles turns for these agents."""
        seats = {
            id_: Seat(agent, policy.timeout, policy.idle, recall if policy.memory else None)
            for id_, agent, policy in (
                (id_, agent, self.policies[id_]) for id_, agent in self.agents.items()
            )
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

    def heartbeats(self, every: timedelta) -> list[Heartbeat]:
        """Heartbeats to run; `every` is the default interval."""
        often = {
            id_: every if policy.heartbeat is None else policy.heartbeat
            for id_, policy in self.policies.items()
        }
        return [
            Heartbeat(
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


def _check_takes_a_turn(id: str, agent: object) -> None:
    """Refuse what cannot be called with a turn: now, and not at its first message."""
    answer = agent if callable(agent) else getattr(agent, "answer", None)
    if not callable(answer):
        raise HoldfastError(
            f"agent {id!r} is of type {type(agent).__name__}: give a function, or an object with answer"
        )
    try:
        inspect.signature(answer).bind(None)
    except TypeError:
        name = getattr(answer, "__qualname__", type(answer).__name__)
        raise HoldfastError(f"agent {id!r}: {name} must take one argument, the turn") from None
    except ValueError:
        # Some functions that are not written in Python do not tell.
        return
