"""What one process runs: which consumers, and which sweeps, for its agents, channels and settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.activity.reporter import Reporter
from holdfast.channels.base import Channel
from holdfast.consumers.inbox import Worker
from holdfast.consumers.memory import KnowledgeStoreOutboxRelay, RelayOptions
from holdfast.consumers.outbox import LEASE, Delivery
from holdfast.memory.embedder import Embedder, LocalEmbedder
from holdfast.memory.maintenance import MemorySweeper
from holdfast.memory.recall import Recall
from holdfast.queue.consumer import Consumer
from holdfast.queue.event import INBOX, MEMORY, OUTBOX
from holdfast.queue.policy import Backoff, Policy, Share
from holdfast.queue.store import Process, Store, SweepPolicy
from holdfast.queue.sweeper import Sweeper
from holdfast.roster import Roster
from holdfast.routing.response import RESPONSE_ATTEMPTS
from holdfast.routing.router import MOST_CHOICES, PLATFORMS
from holdfast.settings import Settings
from holdfast.settings.extras import is_missing
from holdfast.store import files
from holdfast.store.memory import open_knowledge, open_observations, open_people
from holdfast.telemetry import SWEPT

COLLECT_LIMIT = 100
PRUNE_EVERY = timedelta(hours=1)
OUTBOX_BACKOFF = Backoff(most=timedelta(seconds=60))


class Plan:
    """The parts of a process, made for one store and one holder."""

    def __init__(
        self, store: Store, settings: Settings, holder: str, embedder: Embedder | None = None
    ) -> None:
        self._store = store
        self._settings = settings
        self._holder = holder
        self.can_index = not (
            isinstance(embedder or LocalEmbedder(), LocalEmbedder) and is_missing("memory")
        )
        self._observations = open_observations(store)
        self._knowledge = open_knowledge(store, embedder)
        self.reporter: Reporter | None = None
        self._next_prune_at = 0.0
        self._inbox: Consumer | None = None
        self._worker: Worker | None = None
        self._patience: dict[str, Any] = {
            "poll": settings.poll,
            "jitter": settings.poll_jitter,
            "start_stagger": settings.start_stagger,
        }

    def inbox(self, roster: Roster, workers: int, unnamed: str) -> Consumer:
        """Build the consumer of the inbox, with so many workers for each agent.

        `unnamed` is the agent of messages that name none; '' if another process serves it."""
        policy = Policy(
            queue=INBOX,
            shares=self._shares(roster),
            each=workers,
            at_once=max(workers, self._settings.workers_total),
            unnamed=unnamed,
            backoff=Backoff(first=self._settings.retry_first, most=self._settings.retry_most),
            **self._patience,
        )
        self._worker = roster.worker(self._store, self._settings.files, self._recall())
        handle, ended = self._worker.handle, None
        if self._settings.activity or roster.listeners:
            self.reporter = Reporter(self._store, handle, roster.default, roster.listeners)
            handle, ended = self.reporter.handle, self.reporter.ended
        self._inbox = Consumer(self._store, policy, handle, self._holder, ended)
        self.serve_unnamed(unnamed)
        return self._inbox

    def serve_unnamed(self, agent: str) -> None:
        """Work messages that name no agent as this one's from now on; '' leaves them to another process."""
        if self._inbox is None or self._worker is None:
            return
        if agent:
            # Turns that are claimed already keep an agent that runs here.
            self._worker.default = agent
            if self.reporter is not None:
                self.reporter.default = agent
        self._inbox.serve_unnamed(agent)

    def _shares(self, roster: Roster) -> tuple[Share, ...]:
        """Agents that are claimed alike are claimed together."""
        alike: dict[tuple[timedelta, int], list[str]] = {}
        for id_, policy in roster.policies.items():
            kind = (
                policy.lease or self._settings.lease,
                COLLECT_LIMIT if policy.turns == "collect" else 1,
            )
            alike.setdefault(kind, []).append(id_)
        return tuple(
            Share(
                targets=tuple(targets),
                lease=lease,
                collect_limit=collect,
                max_attempts=self._settings.slack_max_attempts,
            )
            for (lease, collect), targets in alike.items()
        )

    def outbox(self, channels: Mapping[str, Channel]) -> Consumer:
        share = Share(targets=tuple(channels), lease=LEASE, max_attempts=RESPONSE_ATTEMPTS)
        policy = Policy(
            queue=OUTBOX,
            shares=(share,),
            at_once=self._settings.deliveries,
            backoff=OUTBOX_BACKOFF,
            **self._patience,
        )
        return Consumer(self._store, policy, Delivery(channels, self._store).handle, self._holder)

    def _recall(self) -> Recall | None:
        if not self._settings.memory:
            return None
        people, budget = open_people(self._store), self._settings.memory_tokens
        return Recall(self._observations, self._knowledge, people, budget, self.can_index)

    def memory(self) -> Consumer:
        options = RelayOptions(node_id=self._holder)
        relay = KnowledgeStoreOutboxRelay(self._observations, self._knowledge, options=options)
        return relay.consumer(poll=self._settings.poll, jitter=self._settings.poll_jitter)

    def sweeper(self, process: Callable[[], Process], on_reaped: Callable[[], None]) -> Sweeper:
        settings = self._settings
        memory = MemorySweeper(
            self._observations, self._knowledge if settings.memory else None, settings.keep_deleted
        )
        return Sweeper(
            self._store,
            self._sweeps(),
            process,
            settings.sweep_every,
            settings.keep_activity,
            [memory.sweep, self._prune_audit, self._prune_hourly],
            on_reaped,
        )

    async def _prune_audit(self) -> None:
        if self._settings.keep_audit is not None:
            await self._store.prune_audit(self._settings.keep_audit)

    async def _prune_hourly(self) -> None:
        """Delete old files of conversations, and unused choices of agents; it walks through all of them."""
        settings, now = self._settings, time.monotonic()
        if now < self._next_prune_at:
            return
        self._next_prune_at = now + PRUNE_EVERY.total_seconds()
        if settings.keep_files is not None:
            pruned = await asyncio.to_thread(files.sweep, settings.files, settings.keep_files)
            SWEPT.add("files", "pruned", by=pruned)
        pruned = await self._store.prune_choices(settings.keep_choices, MOST_CHOICES, PLATFORMS)
        SWEPT.add("choices", "pruned", by=pruned)

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
