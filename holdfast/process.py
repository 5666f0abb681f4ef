"""One running process: its consumers, the tasks beside them, its signals and its sign-off."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast import __version__, channels
from holdfast.activity import reporter as activity
from holdfast.activity.reporter import Reporter
from holdfast.channels.base import RESPONSE_ATTEMPTS, Channel
from holdfast.channels.heartbeat import HeartbeatChannel
from holdfast.channels.schedule import ScheduleChannel
from holdfast.channels.watermark import read_last_gaps
from holdfast.chat import ChatStore
from holdfast.consumers.inbox import Worker
from holdfast.consumers.memory import KnowledgeStoreOutboxRelay, RelayOptions
from holdfast.consumers.notices import DeadLetterNotices
from holdfast.consumers.outbox import LEASE, Delivery
from holdfast.consumers.pausing import PausedConsumers
from holdfast.consumers.pruner import Pruner
from holdfast.consumers.waiting import WaitingTurns
from holdfast.errors import StoreUnavailable
from holdfast.memory.embedder import LocalEmbedder
from holdfast.memory.maintenance import MemorySweeper
from holdfast.memory.recall import Recall
from holdfast.message import Payload
from holdfast.migrations.runner import migrate
from holdfast.queue import metrics
from holdfast.queue.consumer import Consumer, Handler
from holdfast.queue.event import INBOX, MEMORY, OUTBOX, new_id
from holdfast.queue.policy import Backoff, Policy, TargetGroup
from holdfast.queue.settler import OnSettled
from holdfast.queue.store import VERSION, Process, SweepPolicy
from holdfast.queue.sweeper import Sweeper
from holdfast.routing.directory import (
    CHANNELS,
    PROVIDERS,
    Directory,
    PublishedDirectory,
    publish,
)
from holdfast.routing.router import SETTING
from holdfast.settings import Settings
from holdfast.settings.extras import is_missing, remedy
from holdfast.store import open_store
from holdfast.store.memory import open_knowledge, open_observations, open_people
from holdfast.store.pauses import WAKE
from holdfast.store.schedules import configured_schedules
from holdfast.store.statistics import roll_up
from holdfast.telemetry import (
    MEMORY_NOT_INSTALLED,
    SIGN_OFF_FAILED,
    SPAN_MIGRATE,
    spans,
)
from holdfast.telemetry import startup as telemetry
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.watchdog import watch_loop

if TYPE_CHECKING:
    from holdfast.app import AgentHarness, Serve

log = logging.getLogger(__name__)

COLLECT_LIMIT = 100
SIGN_OFF_WITHIN = timedelta(seconds=2)
"""Time for waking other processes and unregistering at a stop."""


async def run(
    app: AgentHarness,
    num_workers: int,
    ready: asyncio.Event,
    serve: Serve,
    app_token: str | None,
) -> None:
    """Migrate, open the store and work until stopped; with 0 workers, only answer HTTP."""
    settings = app.load_settings()
    telemetry.start(settings)
    with spans.background_span(SPAN_MIGRATE):
        await asyncio.to_thread(migrate, settings.database)
    pool_size = settings.pool_size(num_workers, len(app.agents))
    async with open_store(
        settings.database,
        direct_url=settings.database_direct,
        pool_size=pool_size,
        on_put=app.listeners.publish_put if app.listeners else None,
    ) as store:
        now = await store.now()
        adding = _channels(app, store, app_token, now)
        with watch_loop(settings.blocked_after), app.using(store), adding:
            app.serves_http = serve is not nullcontext
            async with serve(app):
                if num_workers:
                    await RunningProcess(app, store, settings).run(num_workers, ready)
                else:
                    await _receive_webhooks(app, ready)


@contextmanager
def _channels(
    app: AgentHarness, store: ChatStore, app_token: str | None, now: datetime
) -> Iterator[None]:
    """Add the configured channels to those of the app, for the length of the block."""
    settings, given = app.load_settings(), dict(app.channels)
    try:
        for channel in channels.configured_channels(settings, store, given, app_token):
            app.add_channel(channel)
        channels.log_incomplete(app.channels)
        if heartbeats := app.heartbeats(settings.heartbeat, now):
            app.add_channel(HeartbeatChannel())
        files = [*configured_schedules(settings, app.default, now), *heartbeats]
        app.add_channel(
            ScheduleChannel(store, settings.max_attempts, files=files, default=app.default)
        )
        yield
    finally:
        app.channels = given


async def _receive_webhooks(app: AgentHarness, ready: asyncio.Event) -> None:
    """Receive webhooks until stopped; other processes run the turns and deliver the responses."""
    receiving = {name: channel for name, channel in app.channels.items() if channel.webhooks}
    async with asyncio.TaskGroup() as group:
        waits = channels.receiving(receiving, app.receive, webhooks_only=True)
        tasks = [group.create_task(wait) for wait in waits]
        await _wait_until_open(receiving.values(), app.limits.open_within)
        ready.set()
        await app.wait_for_stop()
        for task in tasks:
            task.cancel()


class RunningProcess:
    """The consumers of one process, and the tasks beside them, on one store."""

    def __init__(self, app: AgentHarness, store: ChatStore, settings: Settings) -> None:
        self._app = app
        self._store = store
        self._settings = settings
        self._holder = new_id(f"{socket.gethostname()}-{os.getpid()}")
        self._can_index = not (isinstance(app.embedder, LocalEmbedder) and is_missing("memory"))
        self._observations = open_observations(store)
        self._knowledge = open_knowledge(store, app.embedder)
        self._reporter: Reporter | None = None
        self._inbox: Consumer | None = None
        self._worker: Worker | None = None
        self._waiting = WaitingTurns(store)
        self._directory = PublishedDirectory(store)
        self._pauses = PausedConsumers(store, lambda: app.consumers)
        self._polling: dict[str, Any] = {
            "poll": settings.poll,
            "jitter": settings.poll_jitter,
            "start_stagger": settings.start_stagger,
            "let_go_within": app.limits.let_go_within,
        }

    async def run(self, num_workers: int, ready: asyncio.Event) -> None:
        """Register, work until the app is stopped, and sign off."""
        app, store = self._app, self._store
        process = await self._register()
        default = await self._announce()
        await activity.announce(
            store, process, app.listeners, default, is_on=self._settings.activity
        )
        app.consumers = consumers = self._consumers(num_workers, default)
        await self._pauses.read()
        if self._reporter is not None:
            await self._reporter.read_setting()
        async with asyncio.TaskGroup() as group:
            working = [
                group.create_task(consumer.run(self._settings.grace)) for consumer in consumers
            ]
            others = [group.create_task(task) for task in self._tasks(process)]
            await _wait_until_open(app.channels.values(), app.limits.open_within)
            ready.set()
            await app.wait_for_stop()
            for consumer in consumers:
                consumer.stop()
            if working:
                await asyncio.wait(working)
            await app.listeners.drain()
            for task in others:
                task.cancel()
        await _sign_off(store, process.id, consumers)

    async def _register(self) -> Process:
        now = await self._store.now()
        process = Process(
            id=self._holder,
            host=socket.gethostname(),
            started_at=now,
            seen_at=now,
            serves=self._serves(),
        )
        await self._store.register(process)
        return process

    def _serves(self) -> Payload:
        providers = {id_: getattr(one, "provider", None) for id_, one in self._app.agents.items()}
        return asdict(self._app.routing) | {
            CHANNELS: sorted(self._app.channels),
            PROVIDERS: {id_: provider for id_, provider in providers.items() if provider},
            VERSION: __version__,
        }

    def _tasks(self, process: Process) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the coroutines that run beside the consumers until these have stopped."""
        app, store = self._app, self._store
        yield self._listen()
        yield self._directory.follow(self._on_directory)
        yield self._pauses.follow()
        yield self._sweeper(process).run()
        yield app.listeners.run()
        yield self._waiting.run()
        if self._reporter is not None:
            yield self._reporter.run()
        for channel in app.channels.values():
            channel.process_id = process.id
        yield from channels.receiving(app.channels, app.receive, is_alone=not app.serves_http)
        yield DeadLetterNotices(store, app.channels, app.limits.notice_every).run()
        if spans.tracing is not None:
            read_gaps = partial(read_last_gaps, store, app.channels)
            yield metrics.keep_reading(store, app.consumers, read_gaps)

    async def _announce(self) -> str:
        """Publish the agents and limits of this process; return the default of all processes."""
        directory = await self._directory.publish()
        for id_ in self._app.policies:
            # Lift the limit if there is none now: a process that died may have left one.
            await self._store.limit(INBOX, id_, directory.routing.limits.get(id_))
        return directory.routing.default

    def _on_directory(self, directory: Directory) -> None:
        self._app.forget_directory(directory)
        self._serve_unnamed(self._own(directory.routing.default))

    def _own(self, default: str) -> str:
        """Return the default agent of all processes if this one runs it, else ''."""
        return default if default in self._app.agents else ""

    async def _listen(self) -> None:
        """Pass wake-ups of the database on to the consumers."""
        async for queue in self._store.wakeups():
            if queue in ("", SETTING):
                self._directory.changed.set()
            if queue in ("", WAKE):
                self._pauses.changed.set()
            for consumer in self._app.consumers:
                if queue in ("", consumer.policy.queue):
                    consumer.wake.set()

    def _consumers(self, num_workers: int, default: str) -> list[Consumer]:
        consumers = []
        if self._app.agents:
            consumers.append(self._inbox_consumer(num_workers, self._own(default)))
        if self._app.channels:
            consumers.append(self._outbox_consumer())
        if self._settings.memory and self._can_index:
            consumers.append(self._memory_consumer())
        elif any(p.memory for p in self._app.policies.values()) and not self._can_index:
            log.warning(Entry(MEMORY_NOT_INSTALLED, remedy=remedy("memory")))
        return consumers

    def _inbox_consumer(self, workers: int, unnamed: str) -> Consumer:
        """Build the consumer of the inbox, with this many workers for each agent.

        `unnamed` is the agent of messages that name none; '' if another process serves it."""
        app, settings = self._app, self._settings
        policy = Policy(
            queue=INBOX,
            target_groups=self._target_groups(),
            each=workers,
            at_once=max(workers, settings.workers_total),
            unnamed=unnamed,
            backoff=Backoff(first=settings.retry_first, most=settings.retry_most),
            **self._polling,
        )
        self._worker = app.worker(self._store, settings.files, self._recall())
        handle: Handler = self._worker.handle
        ended: OnSettled | None = None
        if settings.activity or app.listeners:
            self._reporter = Reporter(self._store, handle, app.default, app.listeners)
            handle, ended = self._reporter.handle, self._reporter.report_end
            self._worker.frames = self._reporter.report
        on_settled = self._waiting.after(ended)
        self._inbox = Consumer(self._store, policy, handle, self._holder, on_settled)
        self._serve_unnamed(unnamed)
        return self._inbox

    def _serve_unnamed(self, agent: str) -> None:
        """Give messages that name no agent to this one from now on; '' leaves them to others."""
        if self._inbox is None or self._worker is None:
            return
        if agent:
            # Never set it to "": turns that are claimed already need an agent that runs here.
            self._worker.default = agent
            if self._reporter is not None:
                self._reporter.default = agent
        self._inbox.serve_unnamed(agent)

    def _target_groups(self) -> tuple[TargetGroup, ...]:
        """Group agents by lease and collect limit: each group is claimed in one call."""
        alike: dict[tuple[timedelta, int], list[str]] = {}
        for id_, policy in self._app.policies.items():
            collect_limit = COLLECT_LIMIT if policy.turns == "collect" else 1
            alike.setdefault((policy.lease or self._settings.lease, collect_limit), []).append(id_)
        return tuple(
            TargetGroup(
                targets=tuple(targets),
                lease=lease,
                collect_limit=collect_limit,
                max_attempts=self._settings.slack_max_attempts,
            )
            for (lease, collect_limit), targets in alike.items()
        )

    def _outbox_consumer(self) -> Consumer:
        channels, limits = self._app.channels, self._app.limits
        group = TargetGroup(targets=tuple(channels), lease=LEASE, max_attempts=RESPONSE_ATTEMPTS)
        policy = Policy(
            queue=OUTBOX,
            target_groups=(group,),
            at_once=self._settings.deliveries,
            backoff=limits.outbox_backoff,
            **self._polling,
        )
        delivery = Delivery(channels, self._store, limits.requests)
        return Consumer(self._store, policy, delivery.handle, self._holder)

    def _memory_consumer(self) -> Consumer:
        options = RelayOptions(node_id=self._holder)
        relay = KnowledgeStoreOutboxRelay(self._observations, self._knowledge, options=options)
        return relay.consumer(poll=self._settings.poll, jitter=self._settings.poll_jitter)

    def _recall(self) -> Recall | None:
        if not self._settings.memory:
            return None
        people, budget = open_people(self._store), self._settings.memory_tokens
        return Recall(self._observations, self._knowledge, people, budget, self._can_index)

    def _sweeper(self, process: Process) -> Sweeper:
        settings = self._settings
        knowledge = self._knowledge if settings.memory else None
        memory = MemorySweeper(self._observations, knowledge, settings.keep_deleted)
        return Sweeper(
            self._store,
            self._sweeps(),
            lambda: self._status(process),
            settings.sweep_every,
            settings.keep_activity,
            [
                memory.sweep,
                Pruner(self._store, settings).sweep,
                self._waiting.sweep,
                partial(roll_up, self._store),
            ],
            self._directory.changed.set,
            self._app.limits.report_every,
        )

    def _status(self, process: Process) -> Process:
        """Return this process as others see it: its turns, and the reason it woke last."""
        consumers = self._app.consumers
        reasons = [consumer.last_wake_reason for consumer in consumers if consumer.last_wake_reason]
        turns = sum(consumer.running for consumer in consumers)
        return replace(
            process,
            last_wake_reason=reasons[0] if reasons else None,
            turns=turns,
            problems=channels.problems_of(self._app.channels),
        )

    def _sweeps(self) -> Sequence[SweepPolicy]:
        settings = self._settings
        kept: dict[str, Any] = {
            "dedup_window": settings.dedup_window,
            "keep_history": settings.keep_history,
        }
        return [
            SweepPolicy(
                queue=INBOX,
                max_attempts=settings.slack_max_attempts,
                expire_after=settings.expire_after,
                **kept,
            ),
            SweepPolicy(
                queue=OUTBOX,
                max_attempts=RESPONSE_ATTEMPTS,
                discard_unserved=settings.unfetched_after,
                **kept,
            ),
            SweepPolicy(queue=MEMORY, max_attempts=RESPONSE_ATTEMPTS, **kept),
        ]


async def _wait_until_open(channels: Iterable[Channel], within: timedelta) -> None:
    """Wait until channels receive, so that a person who reads "ready" may write at once.

    A platform that is unreachable delays this by `within` at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within.total_seconds()):
            for channel in channels:
                await channel.wait_ready()


async def _sign_off(store: ChatStore, process_id: str, consumers: Sequence[Consumer]) -> None:
    """Leave the work to others: wake them, and unregister."""
    try:
        async with asyncio.timeout(SIGN_OFF_WITHIN.total_seconds()):
            for consumer in consumers:
                await store.wake(consumer.policy.queue)
            if not any(consumer.running for consumer in consumers):
                # Stay registered while turns are held: others free them once they find it gone.
                await store.unregister(process_id)
                await publish(store)
    except (StoreUnavailable, TimeoutError) as error:
        log.warning(Entry(SIGN_OFF_FAILED, error=error))
