"""AgentHarness: agents, channels and everything that keeps them running, in one TaskGroup."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from datetime import timedelta
from weakref import WeakValueDictionary

from holdfast import channels
from holdfast import settings as configuration
from holdfast.activity import reporter as activity
from holdfast.agents.base import Agent
from holdfast.agents.function import Function
from holdfast.channels.base import Channel
from holdfast.channels.heartbeat import HeartbeatChannel
from holdfast.consumers.notices import Apologies
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.memory.embedder import Embedder, LocalEmbedder
from holdfast.message import channel_of, conversation_of, text_of
from holdfast.migrations.runner import migrate
from holdfast.process import Plan
from holdfast.queue import gauge
from holdfast.queue.consumer import ENDS_WITHIN, Consumer
from holdfast.queue.event import INBOX, OUTBOX, Event, NewEvent, new_id
from holdfast.queue.store import Acked, Process, Transaction
from holdfast.roster import Roster
from holdfast.routing.directory import Current, Directory, configured, publish
from holdfast.routing.rooms import post
from holdfast.routing.router import SETTING, Address, Routing, put_message, receive
from holdfast.settings import Settings
from holdfast.settings.extras import remedy
from holdfast.stop import signals
from holdfast.store import Store, open_store
from holdfast.telemetry import (
    AGENT_UNSERVED,
    AGENTS_CONFLICT,
    CANNOT_SIGN_OFF,
    MEMORY_MISSING,
    SPAN_MIGRATE,
    spans,
)
from holdfast.telemetry import starting as telemetry
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.watchdog import watching

log = logging.getLogger(__name__)

SIGN_OFF_WITHIN = timedelta(seconds=2)
OPENED_WITHIN = timedelta(seconds=2)
FOLLOW_EVERY = timedelta(seconds=10)
"""Interval between looks at the agents of other processes, beside those on a signal."""
FOLLOW_AT_MOST = timedelta(seconds=1)


class AgentHarness(Roster):
    """Holds agents and channels, and runs them on a durable store."""

    def __init__(
        self,
        agent: Agent | Function | None = None,
        *,
        default: str | None = None,
        settings: Settings | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        super().__init__(default=default)
        self.embedder = embedder or LocalEmbedder()
        self._arriving: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.consumers: list[Consumer] = []
        self.settings = settings
        self._store: Store | None = None
        self._stop = asyncio.Event()
        self._works = True
        self._current = Current(lambda: self.store, self._own_routing)
        self._others_changed = asyncio.Event()
        self._warned: set[str] = set()
        if agent is not None:
            self.add(default or "agent", agent)

    @property
    def store(self) -> Store:
        if self._store is None:
            raise HoldfastError(
                "the harness is not running: start it with `await app.run()` or `holdfast up --app …`"
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
        """Store a message; its id, or None where that id is known already. Joins the caller's transaction if given."""
        address = Address(channel=channel, sender=sender, sender_id=sender_id)
        directory = await self._directory(text, agent)
        id_, stored = await put_message(
            self.store,
            directory.routing,
            text,
            address,
            max_attempts=self._loaded().max_attempts,
            agent=agent,
            message_id=message_id,
            tx=connection,
        )
        return None if stored is None else id_

    async def post(self, team: str, text: str) -> int:
        """Say something in a team's room, to all its agents; the id of the line."""
        routing = (await self._current.get()).routing
        return await post(self.store, routing, team, text, max_attempts=self._loaded().max_attempts)

    async def responses(self, channel: str, *, limit: int = 100) -> list[Event]:
        """What waits to be fetched by a channel's client, oldest first."""
        return await self.store.waiting(OUTBOX, channel, limit=limit)

    async def ack(self, id: int) -> Acked:
        """The client has it."""
        return await self.store.ack(id)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Ask for a graceful stop: no new turns, running ones may finish."""
        self._stop.set()

    async def run(
        self,
        app_token: str | None = None,
        task_group: asyncio.TaskGroup | None = None,
        num_workers: int | None = None,
        on_ready: Callable[[], None] | None = None,
        serve: Callable[[AgentHarness], AbstractAsyncContextManager[object]] = nullcontext,
        works: bool = True,
    ) -> None:
        """Run until stopped; with a caller's group, in it, and return once everything takes work.

        `num_workers` is the number of turns at once of each agent, within the setting `workers_total`. `serve`
        answers HTTP: it is entered before there is work and left after the last turn. With `works=False` this
        process only answers, for agents in other processes."""
        if works and num_workers is not None and num_workers < 1:
            raise ValueError(
                f"num_workers is the number of turns at once and must be at least 1, not {num_workers}"
            )
        self.check()
        self._stop.clear()
        self._works = works
        ready = asyncio.Event()
        workers = self._loaded().workers if num_workers is None else num_workers
        running = self._serve(workers if works else 0, ready, serve, app_token)
        if task_group is None:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(running)
                with signals(
                    self._stop_on_signal, task, self._loaded().grace + ENDS_WITHIN + SIGN_OFF_WITHIN
                ):
                    if await _first(ready, task) and on_ready is not None:
                        on_ready()
                    await asyncio.wait([task])
            return
        task = task_group.create_task(running)
        await _first(ready, task)

    def _stop_on_signal(self) -> None:
        """Ask for a graceful stop, and tell the person at the terminal what it waits for."""
        turns = sum(consumer.running for consumer in self.consumers)
        if turns:
            what = "1 turn" if turns == 1 else f"{turns} turns"
            grace = self._loaded().grace.total_seconds()
            log.warning(Entry(f"waiting for {what} ({grace:g} s), again to stop now"))
        self.stop()

    def _loaded(self) -> Settings:
        if self.settings is None:
            self.settings = configuration.load()
        return self.settings

    async def _serve(
        self,
        num_workers: int,
        ready: asyncio.Event,
        serve: Callable[[AgentHarness], AbstractAsyncContextManager[object]],
        app_token: str | None,
    ) -> None:
        settings = self._loaded()
        telemetry.start(settings)
        with spans.work(SPAN_MIGRATE):
            await asyncio.to_thread(migrate, settings.database)
        pool_size = settings.pool_size(num_workers, len(self.agents))
        async with open_store(
            settings.database, direct_url=settings.database_direct, pool_size=pool_size
        ) as store:
            given = dict(self.channels)
            with watching(settings.blocked_after), self.using(store):
                try:
                    for channel in channels.configured(settings, store, given, app_token):
                        self.add_channel(channel)
                    if heartbeats := self.heartbeats(settings.heartbeat):
                        self.add_channel(HeartbeatChannel(store, heartbeats, settings.max_attempts))
                    async with serve(self):
                        if num_workers:
                            await self._run_all(store, settings, num_workers, ready)
                        else:
                            await self._attend(ready)
                finally:
                    self.channels = given

    @contextmanager
    def using(self, store: Store) -> Iterator[None]:
        """Everything asks this store meanwhile."""
        self._store = store
        self._current.forget()
        try:
            yield
        finally:
            self._store = None

    async def _attend(self, ready: asyncio.Event) -> None:
        """Messages that platforms send by HTTP are taken; agents and channels work in other processes."""
        async with asyncio.TaskGroup() as group:
            callers = [channel for channel in self.channels.values() if channel.webhooks]
            attending = [
                group.create_task(caller.run_webhooks(self._on_event)) for caller in callers
            ]
            await _opened(callers)
            ready.set()
            await self._stop.wait()
            for task in attending:
                task.cancel()

    async def _run_all(
        self, store: Store, settings: Settings, num_workers: int, ready: asyncio.Event
    ) -> None:
        now, host = await store.now(), socket.gethostname()
        id_, serves = new_id(f"{host}-{os.getpid()}"), asdict(self.routing)
        process = Process(id=id_, host=host, started_at=now, seen_at=now, serves=serves)
        await store.register(process)
        default = await self._announce(store)
        await activity.announce(store, process, self.listeners, default, is_on=settings.activity)
        plan = Plan(store, settings, process.id, self.embedder)
        self.consumers = consumers = self._planned(plan, num_workers, default)
        sweeper = plan.sweeper(lambda: self._alive(process), self._others_changed.set)
        if plan.reporter is not None:
            await plan.reporter.look()
        async with asyncio.TaskGroup() as group:
            working = [group.create_task(consumer.run(settings.grace)) for consumer in consumers]
            others = [
                group.create_task(self._listen(store, consumers)),
                group.create_task(self._follow(store, plan)),
            ]
            others += [group.create_task(sweeper.run()), group.create_task(self.listeners.run())]
            if plan.reporter is not None:
                others.append(group.create_task(plan.reporter.run()))
            others += [
                group.create_task(channel.run(self._on_event)) for channel in self.channels.values()
            ]
            others.append(group.create_task(Apologies(store, self.channels).run()))
            if spans.tracing is not None:
                others.append(group.create_task(gauge.keep_reading(store, consumers)))
            await _opened(self.channels.values())
            ready.set()
            await self._stop.wait()
            for consumer in consumers:
                consumer.stop()
            if working:
                await asyncio.wait(working)
            await self.listeners.heard()
            for task in others:
                task.cancel()
        await _say_goodbye(store, process.id, consumers)

    async def _announce(self, store: Store) -> str:
        """Publish routing and limits, merged with those of other processes. Returns the default agent of all."""
        directory = await publish(store)
        for id_ in self.policies:
            # Also where there is none: a process that died may have left one.
            await store.limit(INBOX, id_, directory.routing.limits.get(id_))
        self._tell_conflicts(directory)
        return directory.routing.default

    def _tell_conflicts(self, directory: Directory) -> None:
        for conflict in directory.conflicts:
            if conflict not in self._warned:
                log.warning(Entry(AGENTS_CONFLICT, conflict=conflict))
        self._warned = {*directory.conflicts, *(self._warned & {*directory.routing.lanes})}

    async def _follow(self, store: Store, plan: Plan) -> None:
        """Keep up with processes that come and go: their agents, and which one is the default."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_EVERY.total_seconds()):
                    await self._others_changed.wait()
            self._others_changed.clear()
            with suppress(HoldfastError):
                directory = await publish(store)
                self._current.forget()
                self._tell_conflicts(directory)
                plan.serve_unnamed(self._own(directory.routing.default))
            await asyncio.sleep(FOLLOW_AT_MOST.total_seconds())

    def _own(self, default: str) -> str:
        """The default agent of all processes, if this one runs it; else ''."""
        return default if default in self.agents else ""

    def _own_routing(self) -> Routing:
        """Agents that are known without a look at other processes."""
        return self.routing if self._works else configured(self._loaded())

    async def _directory(self, text: str, agent: str | None = None) -> Directory:
        """Agents and teams as a message finds them; warns where nobody serves its agent."""
        directory, missing = await self._current.for_message(text, agent)
        is_running = bool(directory.entries) or not self._works
        if missing is not None and is_running and missing not in self._warned:
            self._warned.add(missing)
            log.warning(Entry(AGENT_UNSERVED, agent=missing))
        return directory

    def _planned(self, plan: Plan, num_workers: int, default: str) -> list[Consumer]:
        consumers = []
        if self.agents:
            consumers.append(plan.inbox(self, num_workers, self._own(default)))
        if self.channels:
            consumers.append(plan.outbox(self.channels))
        if self._loaded().memory and plan.can_index:
            consumers.append(plan.memory())
        elif any(policy.memory for policy in self.policies.values()) and not plan.can_index:
            log.warning(Entry(MEMORY_MISSING, remedy=remedy("memory")))
        return consumers

    def _alive(self, process: Process) -> Process:
        reasons = [
            consumer.last_wake_reason for consumer in self.consumers if consumer.last_wake_reason
        ]
        turns = sum(consumer.running for consumer in self.consumers)
        return replace(process, last_wake_reason=reasons[0] if reasons else None, turns=turns)

    async def _listen(self, store: Store, consumers: list[Consumer]) -> None:
        async for queue in store.wakeups():
            if queue in ("", SETTING):
                self._others_changed.set()
            for consumer in consumers:
                if queue in ("", consumer.policy.queue):
                    consumer.wake.set()

    async def _on_event(self, new: NewEvent) -> int | None:
        channel = self.channels.get(channel_of(new.event))
        text = text_of(new.event) if channel is None else channel.routing_text(new.event)
        # Routing may have to ask the database. Messages of one conversation are stored as they came all the same.
        async with self._arriving.setdefault(conversation_of(new.event), asyncio.Lock()):
            return await receive(self.store, (await self._directory(text)).routing, new, text)


async def _opened(channels: Iterable[Channel]) -> None:
    """Who hears that we are ready may write at once; a platform that is away keeps nobody waiting."""
    with suppress(TimeoutError):
        async with asyncio.timeout(OPENED_WITHIN.total_seconds()):
            for channel in channels:
                await channel.wait_ready()


async def _say_goodbye(store: Store, process_id: str, consumers: Sequence[Consumer]) -> None:
    """What this process made ready and will not take is for others."""
    try:
        async with asyncio.timeout(SIGN_OFF_WITHIN.total_seconds()):
            for consumer in consumers:
                await store.wake(consumer.policy.queue)
            if not any(consumer.running for consumer in consumers):
                # Else others have to find it gone: that frees what it holds.
                await store.unregister(process_id)
                await publish(store)
    except (StoreUnavailable, TimeoutError) as error:
        log.warning(Entry(CANNOT_SIGN_OFF, error=error))


async def _first(ready: asyncio.Event, task: asyncio.Task[None]) -> bool:
    """Whether it became ready before it ended."""
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(ready.wait())
        await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    return ready.is_set()
