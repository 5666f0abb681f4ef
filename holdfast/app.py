"""AgentHarness: the agents, teams, channels and hooks of an app, and its ways to store messages."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar, overload
from weakref import WeakValueDictionary

from typing_extensions import Unpack

from holdfast import process, signals
from holdfast import settings as configuration
from holdfast.activity.listeners import Listener, Listeners
from holdfast.agents.base import Agent, AgentOptions, AgentPolicy, AgentProfile, Team, policy_of
from holdfast.agents.function import Function, FunctionAgent
from holdfast.agents.tools import step
from holdfast.channels.base import Channel, ChannelLike, as_channel
from holdfast.channels.heartbeat import PROMPT, heartbeat
from holdfast.chat import ChatStore
from holdfast.consumers.inbox import HostedAgent, Worker
from holdfast.consumers.limits import Limits
from holdfast.errors import HoldfastError, Unknown
from holdfast.memory.embedder import Embedder, LocalEmbedder
from holdfast.memory.recall import Recall
from holdfast.message import channel_of, conversation_of, text_before_routing
from holdfast.queue.consumer import Consumer
from holdfast.queue.event import OUTBOX, Event, NewEvent
from holdfast.queue.store import Acked, Transaction
from holdfast.routing.directory import Current, Directory, configured_routing
from holdfast.routing.files import Attachments
from holdfast.routing.handoff import Teamwork
from holdfast.routing.hooks import Hooks, IncomingHook, OutgoingHook
from holdfast.routing.rooms import post
from holdfast.routing.router import Address, Routing, checked_id, put_message, receive
from holdfast.settings import Settings
from holdfast.store.chain import find_message
from holdfast.store.schedules import Schedule
from holdfast.telemetry import AGENT_UNSERVED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Function)
Serve = Callable[["AgentHarness"], AbstractAsyncContextManager[object]]
"""Returns a context manager that answers HTTP for an app during its block."""


class AgentHarness:
    """The agents and channels of an app, and the process that runs them on a durable store.

    Agents, teams, channels and hooks are added before `run`, and not changed after."""

    def __init__(
        self,
        agent: Agent | Function | None = None,
        *,
        default: str | None = None,
        settings: Settings | None = None,
        embedder: Embedder | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.agents: dict[str, Agent] = {}
        self.policies: dict[str, AgentPolicy] = {}
        self.teams: dict[str, Team] = {}
        self.channels: dict[str, Channel] = {}
        self.serves_http = False
        self.hooks = Hooks()
        self.listeners = Listeners()
        self.embedder = embedder or LocalEmbedder()
        self.consumers: list[Consumer] = []
        self.settings = settings
        self.limits = limits or Limits()
        self._default = default
        self._routing: Routing | None = None
        self._store: ChatStore | None = None
        self._stop = asyncio.Event()
        self._works = True
        self._current = Current(lambda: self.store, self._own_routing)
        self._arriving: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unserved: set[str] = set()
        if agent is not None:
            self.add(default or "agent", agent)

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
        """Decorate a function that answers turns; without an id, the agent takes its name."""
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
        # Some kinds of agents have defaults of their own, which options override.
        self.policies[id] = policy_of(id, options, getattr(agent, "default_policy", {}))
        self._routing = None
        self.agents[id] = FunctionAgent(agent) if callable(agent) else agent
        if hasattr(agent, "join"):
            agent.join(self)

    def team(
        self,
        id: str,
        *,
        name: str | None = None,
        description: str = "",
        agents: Sequence[str],
        leader: str,
    ) -> None:
        """Add a team, whose messages go to its leader. The description helps people to choose."""
        checked_id(id)
        if id.lower() in map(str.lower, self.teams):
            raise HoldfastError(f"there are two teams named {id!r}")
        if len(set(agents)) < len(agents):
            raise HoldfastError(f"team {id!r} names an agent twice")
        if leader not in agents:
            raise HoldfastError(f"the leader {leader!r} of team {id!r} is not one of its agents")
        self._routing = None
        self.teams[id] = Team(
            name=name or id, agents=tuple(agents), leader=leader, description=description
        )

    def add_channel(self, channel: Channel | ChannelLike) -> None:
        known = as_channel(channel)
        self.channels[known.name] = known

    def incoming(self, hook: IncomingHook) -> IncomingHook:
        """Decorate a function that may change a message before its agent sees it.

        `holdfast.routing.hooks.IncomingResult` says what it may return."""
        self.hooks.incoming.append(hook)
        return hook

    def outgoing(self, hook: OutgoingHook) -> OutgoingHook:
        """Decorate a function that may change a reply before it is stored.

        `holdfast.routing.hooks.OutgoingResult` says what it may return."""
        self.hooks.outgoing.append(hook)
        return hook

    step = staticmethod(step)

    def on(self, kind: str) -> Callable[[Listener], Listener]:
        """Decorate a function that is called for events of this process, like "chain_step_done"."""

        def register(listener: Listener) -> Listener:
            self.listeners.add(kind, listener)
            return listener

        return register

    @property
    def routing(self) -> Routing:
        """The routing of the agents and teams of this app."""
        if self._routing is None:
            self._routing = self._build_routing()
        return self._routing

    def check(self) -> None:
        """Raise HoldfastError for an app that cannot work, before anything runs."""
        if self._default and self._default not in self.agents:
            has = f"it has {', '.join(self.agents)}" if self.agents else "it has none"
            raise HoldfastError(
                f"the default agent {self._default!r} is not an agent of this app: {has}"
            )
        self._routing = self._build_routing()

    def _build_routing(self) -> Routing:
        for id_, team in self.teams.items():
            for agent in team.agents:
                if agent not in self.agents:
                    raise HoldfastError(f"{agent!r} of team {id_!r} is not an agent of this app")
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
            descriptions={
                id_: policy.description
                for id_, policy in self.policies.items()
                if policy.description
            },
        )

    def worker(self, store: ChatStore, files: Path, recall: Recall | None = None) -> Worker:
        """Build the handler of inbox turns for these agents."""
        hosted = {
            id_: HostedAgent(
                agent,
                policy.timeout,
                policy.idle,
                recall if policy.memory else None,
                self._profile(id_, policy),
                policy.while_waiting == "release",
            )
            for id_, agent, policy in (
                (id_, agent, self.policies[id_]) for id_, agent in self.agents.items()
            )
        }
        return Worker(
            store,
            hosted,
            self.default,
            self.hooks,
            Teamwork(self.routing, Attachments(files, self._workspaces()), store),
            self.channels,
            files,
        )

    def _profile(self, id: str, policy: AgentPolicy) -> AgentProfile | None:
        """Return the name and icon that channels show for a team member; None for others."""
        if not any(id in team.agents for team in self.teams.values()):
            return None
        return AgentProfile(name=policy.name or id, icon=policy.icon)

    def _workspaces(self) -> dict[str, Path]:
        """Return the workspaces of the agents that have one."""
        found = {id_: getattr(agent, "workspace", None) for id_, agent in self.agents.items()}
        return {id_: folder for id_, folder in found.items() if isinstance(folder, Path)}

    def heartbeats(self, every: timedelta, now: datetime) -> list[Schedule]:
        """Return the schedules of heartbeats; `every` is the default interval."""
        often = {
            id_: every if policy.heartbeat is None else policy.heartbeat
            for id_, policy in self.policies.items()
        }
        return [
            heartbeat(id_, interval, now, self.policies[id_].heartbeat_prompt or PROMPT)
            for id_, interval in often.items()
            if interval
        ]

    def targets_of(self, agent: str) -> list[str]:
        """Return the targets of an agent's messages; '' belongs to the default agent."""
        return [agent, ""] if agent == self.default else [agent]

    @property
    def store(self) -> ChatStore:
        if self._store is None:
            raise HoldfastError(
                "the harness is not running: start it with `await app.run()`"
                " or `holdfast up --app …`"
            )
        return self._store

    async def put(
        self,
        text: str,
        *,
        channel: str = "api",
        sender: str = "API",
        sender_id: str | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        connection: Transaction | None = None,
    ) -> str | None:
        """Store a message. Returns its id, or None if that id is known already.

        With `connection` it joins the caller's transaction."""
        address = Address(channel=channel, sender=sender, sender_id=sender_id)
        directory = await self._directory(text, agent)
        id_, stored = await put_message(
            self.store,
            directory.routing,
            text,
            address,
            max_attempts=self.load_settings().max_attempts,
            agent=agent,
            message_id=message_id,
            tx=connection,
        )
        return None if stored is None else id_

    async def post(self, team: str, text: str) -> int:
        """Post to a team's room, for all its agents. Returns the id of the line."""
        routing = (await self._current.get()).routing
        return await post(
            self.store, routing, team, text, max_attempts=self.load_settings().max_attempts
        )

    async def signal(
        self, message_id: str, name: str, value: object = None, *, actor: str | None = None
    ) -> None:
        """Send a signal to the turn of a message, which waits for it now or later.

        An `actor` is recorded in the audit log. Raises Unknown if there is no such message, and
        HoldfastError if it has ended."""
        message = await find_message(self.store, message_id)
        if message is None:
            raise Unknown(f"there is no message {message_id!r}")
        if not await self.store.signal(message.id, name, value, actor=actor):
            raise HoldfastError(f"message {message_id!r} has ended and takes no signal")

    async def responses(self, channel: str, *, limit: int = 100) -> list[Event]:
        """Return the responses that wait for a channel's client, oldest first."""
        return await self.store.waiting(OUTBOX, channel, limit=limit)

    async def ack(self, id: int) -> Acked:
        """Acknowledge a response: the client has it."""
        return await self.store.ack(id)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Ask for a graceful stop: no new turns, running ones may finish."""
        self._stop.set()

    async def wait_for_stop(self) -> None:
        """Wait until somebody asks for a stop."""
        await self._stop.wait()

    async def run(
        self,
        app_token: str | None = None,
        task_group: asyncio.TaskGroup | None = None,
        num_workers: int | None = None,
        on_ready: Callable[[], None] | None = None,
        serve: Serve = nullcontext,
        works: bool = True,
    ) -> None:
        """Run until stopped. With a `task_group`, run in it and return once the app is ready.

        `num_workers` is the number of turns that each agent runs at once, within the setting
        `workers_total`. `serve` answers HTTP: it is entered before the first turn and left after
        the last one. With `works=False` this process only answers HTTP, for agents in other
        processes."""
        if works and num_workers is not None and num_workers < 1:
            raise ValueError(
                "num_workers is the number of turns at once and must be at least 1, "
                f"not {num_workers}"
            )
        self.check()
        self._stop.clear()
        self._works = works
        ready = asyncio.Event()
        workers = self.load_settings().workers if num_workers is None else num_workers
        running = process.run(self, workers if works else 0, ready, serve, app_token)
        if task_group is None:
            await signals.run_until_signal(self, running, ready, on_ready)
        else:
            await signals.is_ready(ready, task_group.create_task(running))

    def load_settings(self) -> Settings:
        """Return the settings of this app; read them first if it was given none."""
        if self.settings is None:
            self.settings = configuration.load()
        return self.settings

    @contextmanager
    def using(self, store: ChatStore) -> Iterator[None]:
        """Store messages here for the length of the block."""
        self._store = store
        self._current.forget()
        try:
            yield
        finally:
            self._store = None

    async def receive(self, new: NewEvent) -> int | None:
        """Store a message from a channel. Returns its id, or None if it is known already."""
        channel = self.channels.get(channel_of(new.event))
        text = (
            text_before_routing(new.event) if channel is None else channel.routing_text(new.event)
        )
        # Routing may wait for the database. The lock keeps the messages of a conversation in order.
        async with self._arriving.setdefault(conversation_of(new.event), asyncio.Lock()):
            return await receive(self.store, (await self._directory(text)).routing, new, text)

    def forget_directory(self, directory: Directory) -> None:
        """Read the directory again before the next message: agents came or went."""
        self._current.forget()
        self._unserved -= directory.servers.keys()

    def _own_routing(self) -> Routing:
        """Return the agents that are known without asking what other processes serve."""
        return self.routing if self._works else configured_routing(self.load_settings())

    async def _directory(self, text: str, agent: str | None = None) -> Directory:
        """Return the directory for a message; warn if no process serves its agent."""
        directory, missing = await self._current.for_message(text, agent)
        # A process that only answers HTTP does not follow the directory.
        self._unserved -= directory.servers.keys()
        is_running = bool(directory.entries) or not self._works
        if missing is not None and is_running and missing not in self._unserved:
            self._unserved.add(missing)
            log.warning(Entry(AGENT_UNSERVED, agent=missing))
        return directory


def _check_takes_a_turn(id: str, agent: object) -> None:
    """Raise HoldfastError for an agent that cannot be called with a turn."""
    answer = agent if callable(agent) else getattr(agent, "answer", None)
    if not callable(answer):
        raise HoldfastError(
            f"agent {id!r} is of type {type(agent).__name__}: "
            "give a function, or an object with answer"
        )
    try:
        inspect.signature(answer).bind(None)
    except TypeError:
        name = getattr(answer, "__qualname__", type(answer).__name__)
        raise HoldfastError(f"agent {id!r}: {name} must take one argument, the turn") from None
    except ValueError:
        # Some functions that are not written in Python have no signature.
        return
