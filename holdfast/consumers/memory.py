"""Consumer of the memory queue: write changes of observations to the knowledge index."""

from __future__ import annotations

import asyncio
import inspect
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import TracebackType
from typing import Any, assert_never

from holdfast.errors import StoreUnavailable, Unreadable
from holdfast.memory.breaker import FIRST_PAUSE, Breaker, Timeouts, is_unreachable
from holdfast.memory.knowledge import DEFAULT_AGENT_NAME, KnowledgeScope, KnowledgeStore
from holdfast.memory.observation import ObservationStore, document_of
from holdfast.queue.consumer import Consumer
from holdfast.queue.event import MEMORY
from holdfast.queue.outcome import Dead, Done, Lost, Outcome, Retry, Settled, Snooze
from holdfast.queue.policy import Policy, TargetGroup, outcome_of
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn
from holdfast.telemetry import INDEX_UNREACHABLE, INDEXING_FAILED
from holdfast.telemetry.logs import Entry

__all__ = [
    "DEFAULT_AGENT_NAME",
    "POISON_CLAIM",
    "DrainResult",
    "KnowledgeStoreOutboxRelay",
    "RelayOptions",
]

log = logging.getLogger(__name__)

POISON_CLAIM = "POISON"
"""Value of agent.mem_outbox.claimed_by for a dead letter."""

MIN_DURATION = timedelta(milliseconds=1)
MAX_DELAY = timedelta(seconds=60)
STOP_WITHIN = timedelta(seconds=5)
TURNS_AT_ONCE = 8
COLLECT_LIMIT = 100


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """Settings of a relay."""

    batch_size: int = 32
    claim_duration: timedelta = timedelta(seconds=60)
    poll_interval: timedelta = timedelta(milliseconds=500)
    max_attempts: int = 10
    node_id: str = field(default_factory=lambda: f"node-{uuid.uuid4()}")

    def __post_init__(self) -> None:
        # Check the types, too: untyped code of users may pass anything.
        numbers: tuple[object, ...] = (self.batch_size, self.max_attempts)
        durations: tuple[object, ...] = (self.claim_duration, self.poll_interval)
        if not all(isinstance(number, int) and number >= 1 for number in numbers):
            raise ValueError("batch_size and max_attempts must each be at least 1")
        if not all(
            isinstance(duration, timedelta) and duration >= MIN_DURATION for duration in durations
        ):
            raise ValueError(
                "claim_duration and poll_interval must each be at least 1 ms, as a timedelta"
            )
        if not str(self.node_id or "").strip():
            raise ValueError("node_id must not be empty")

    @classmethod
    def defaults(cls) -> RelayOptions:
        return cls()


@dataclass(frozen=True, slots=True)
class DrainResult:
    """Number of events of one drain, by outcome. Events that wait for the index are not counted."""

    processed: int = 0
    failed: int = 0
    poisoned: int = 0

    @property
    def claimed(self) -> int:
        return self.processed + self.failed + self.poisoned

    def __add__(self, other: DrainResult) -> DrainResult:
        return DrainResult(
            self.processed + other.processed,
            self.failed + other.failed,
            self.poisoned + other.poisoned,
        )


DEFAULT_OPTIONS = RelayOptions.defaults()


class KnowledgeStoreOutboxRelay:
    """Writes changes of observations to a knowledge store. Any number of relays may run at once."""

    def __init__(
        self,
        store: ObservationStore,
        knowledge_store: KnowledgeStore,
        agent_name: str = DEFAULT_AGENT_NAME,
        options: RelayOptions = DEFAULT_OPTIONS,
    ) -> None:
        # Check the arguments although they are typed: untyped code of users may pass anything.
        if None in (store, knowledge_store, options) or not str(agent_name or "").strip():
            raise ValueError(
                "a relay needs an observation store, a knowledge store, an agent name and options"
            )
        self.agent_name = agent_name
        # The default is one shared object; each relay that uses it needs a node id of its own.
        self.options = RelayOptions.defaults() if options is DEFAULT_OPTIONS else options
        self._observations = store
        self._knowledge = knowledge_store
        self._breaker = Breaker()
        self._timeouts = Timeouts()
        self._running: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._consumer: Consumer | None = None

    @property
    def _store(self) -> Store:
        return self._observations.store

    async def drain_once(self) -> DrainResult:
        """Index at most one batch of the changes that are due now."""
        result, left = DrainResult(), self.options.batch_size
        while left > 0 and not self._breaker.is_open:
            turns = await self._store.claim(
                MEMORY,
                [""],
                limit=1,
                lease=self.options.claim_duration,
                holder=self.options.node_id,
                collect_limit=left,
                max_attempts=self.options.max_attempts,
            )
            if not turns:
                # Nobody can claim an event that used up its attempts, and it blocks its subject.
                buried = await self._store.bury(MEMORY, self.options.max_attempts)
                if not buried:
                    break
                result += DrainResult(poisoned=buried)
                continue
            result += await self._work(turns[0])
            left -= len(turns[0].events)
        return result

    async def _work(self, turn: LeasedTurn) -> DrainResult:
        outcome = Snooze(FIRST_PAUSE) if self._breaker.is_open else await self.handle(turn)
        if isinstance(outcome, Retry | Dead) and len(turn.events) > 1:
            # Settle each event by itself, under the same lease, so that one that cannot be indexed
            # does not delay the others.
            result = DrainResult()
            for event in turn.events:
                result += await self._work(replace(turn, events=(event,)))
            return result
        [end] = await self._store.settle([(turn, outcome)], max_attempts=self.options.max_attempts)
        return _count_result(turn, outcome, end)

    async def handle(self, turn: LeasedTurn) -> Outcome:
        """Index the changes of a turn once.

        A failure is due again in 2, 4, 8 … 60 s. An unreachable index uses no attempt."""
        try:
            return await self._try_to_index(turn)
        except _IndexAway as away:
            return Snooze(self._pause(away.error))

    def _pause(self, error: Exception) -> timedelta:
        pause = self._breaker.open()
        log.warning(Entry(INDEX_UNREACHABLE, error=error, pause_seconds=pause.total_seconds()))
        return pause

    async def _try_to_index(self, turn: LeasedTurn) -> Outcome:
        """Index the changes of a turn once. Raises _IndexAway if the index is unreachable."""
        answers_before = self._timeouts.answers
        try:
            # Half of the lease, so that the turn is still ours when time is up.
            async with asyncio.timeout(self.options.claim_duration.total_seconds() / 2):
                await self._dispatch(turn)
        except Unreadable as error:
            return outcome_of(error)
        except Exception as error:  # noqa: BLE001 - the relay survives any error
            return self._classify_failure(turn, error, answers_before)
        self._timeouts.note_answer(turn.primary.id)
        self._breaker.close()
        return Done()

    def _classify_failure(self, turn: LeasedTurn, error: Exception, answers_before: int) -> Outcome:
        if is_unreachable(error):
            raise _IndexAway(error)
        if isinstance(error, TimeoutError) and not self._timeouts.note_timeout(
            turn.primary.id, answers_before
        ):
            # The index may answer nobody. Give the turn back, so that others are tried meanwhile.
            return Snooze(self._pause(error))
        log.warning(Entry(INDEXING_FAILED, event_id=turn.primary.id, error=repr(error)))
        return Retry(f"{type(error).__name__}: {error}", _delay(turn.attempt), type(error).__name__)

    async def _dispatch(self, turn: LeasedTurn) -> None:
        """Write the current state of the observations to the index.

        The payload only names them; it may be older than the stored observations."""
        key = str(turn.primary.event["subject_key"])
        scope = KnowledgeScope(self.agent_name, key)
        versions: dict[str, int] = {}
        for event in turn.events:
            versions[str(event.event["observation_local_id"])] = int(
                event.event.get("version") or 0
            )
        workspace = str(turn.primary.event["workspace_id"])
        current = await self._observations.find_by_ids(workspace, sorted(versions))
        here = [observation for observation in current if observation.subject_key == key]
        for observation in here:
            del versions[observation.id]
        if here:
            await _call(
                self._knowledge.upsert, scope, [document_of(observation) for observation in here]
            )
        for id_, version in versions.items():
            await _call(self._knowledge.delete, scope, [id_], version=version)

    async def handle_or_wait(self, turn: LeasedTurn) -> Outcome:
        """Handle a turn, and keep it while the index is unreachable.

        Meanwhile the relay claims no further turns and uses no attempt. A stop does not wait for
        the index; it gives the turn back at once."""
        while True:
            try:
                return await self._try_to_index(turn)
            except _IndexAway as away:
                pause = self._pause(away.error)
            if self._consumer is None:
                await asyncio.sleep(pause.total_seconds())
            elif await self._consumer.is_stopping_within(pause):
                return Snooze(timedelta(0))

    def consumer(
        self, *, poll: timedelta | None = None, jitter: timedelta | None = None
    ) -> Consumer:
        """Return a consumer of the memory queue, with this relay as its handler."""
        options = self.options
        group = TargetGroup(
            targets=("",),
            lease=options.claim_duration,
            collect_limit=COLLECT_LIMIT,
            max_attempts=options.max_attempts,
        )
        policy = Policy(
            queue=MEMORY,
            target_groups=(group,),
            at_once=TURNS_AT_ONCE,
            poll=poll or options.poll_interval,
            jitter=jitter or options.poll_interval / 4,
        )
        self._consumer = Consumer(self._store, policy, self.handle_or_wait, options.node_id)
        return self._consumer

    def start(self) -> None:
        """Index in the background until `stop`."""
        if self._running is None or self._running.done():
            self._stop.clear()
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Claim no more turns, and give running ones back if they do not end soon."""
        running, self._running = self._running, None
        if running is None:
            return
        self._stop.set()
        _, late = await asyncio.wait([running], timeout=STOP_WITHIN.total_seconds())
        for task in late:
            task.cancel()

    async def close(self) -> None:
        await self.stop()

    async def __aenter__(self) -> KnowledgeStoreOutboxRelay:
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _run(self) -> None:
        consumer = self.consumer()
        async with asyncio.TaskGroup() as group:
            working = group.create_task(consumer.run(STOP_WITHIN / 5))
            others = [
                group.create_task(self._listen(consumer)),
                group.create_task(self._bury(consumer)),
            ]
            await self._stop.wait()
            consumer.stop()
            await asyncio.wait([working])
            for task in others:
                task.cancel()

    async def _bury(self, consumer: Consumer) -> None:
        """Bury events without attempts left. A relay that runs alone has no sweeper."""
        while True:
            with suppress(StoreUnavailable):
                if await self._store.bury(MEMORY, self.options.max_attempts):
                    consumer.wake.set()
            await asyncio.sleep(self.options.claim_duration.total_seconds() / 2)

    async def _listen(self, consumer: Consumer) -> None:
        async for _ in self._store.wakeups(MEMORY):
            consumer.wake.set()


class _IndexAway(Exception):
    """The index is unreachable."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


async def _call(call: Callable[..., Awaitable[int]], *arguments: Any, **named: Any) -> None:
    """Call a method of an index. In a user's own index it may be a plain function."""
    if inspect.iscoroutinefunction(call):
        await call(*arguments, **named)
    else:
        answer = await asyncio.to_thread(call, *arguments, **named)
        if inspect.isawaitable(answer):
            await answer


def _delay(attempt: int) -> timedelta:
    return min(timedelta(seconds=2 ** min(attempt, 10)), MAX_DELAY)


def _count_result(turn: LeasedTurn, outcome: Outcome, end: Settled | Lost) -> DrainResult:
    count = len(turn.events)
    if isinstance(end, Lost):
        return DrainResult()
    match outcome:
        case Done():
            return DrainResult(processed=count)
        case Retry():
            return DrainResult(poisoned=count) if end.ended == "dead" else DrainResult(failed=count)
        case Snooze():
            return DrainResult()
        case Dead():
            return DrainResult(poisoned=count)
        case _:
            assert_never(outcome)
