"""The one loop of every queue: claim, keep the lease, handle, settle."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.event import Turn
from holdfast.outcome import Lost, Outcome, Retry, Settled
from holdfast.store.base import DEFAULT_MAX_ATTEMPTS, Store
from holdfast.wake import Reason, Wake

log = logging.getLogger(__name__)

Handler = Callable[[Turn], Awaitable[Outcome]]

RENEW_AT_LEAST = timedelta(seconds=10)
"""A cancelled turn is noticed at the next renewal, so there is one at least this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Doubling from `first` to `most`, spread at random so that what failed together does not come back together."""

    first: timedelta = timedelta(seconds=2)
    most: timedelta = timedelta(minutes=5)

    def delay(self, attempt: int) -> timedelta:
        longest: timedelta = min(self.first * 2 ** min(attempt, 30), self.most)
        return self.first + (longest - self.first) * random.random()


OUTAGE = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=5))
"""Between tries while the database is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Targets of a queue that are claimed alike."""

    targets: tuple[str, ...]
    lease: timedelta
    collect_limit: int = 1
    max_attempts: int = DEFAULT_MAX_ATTEMPTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one queue is consumed by one process."""

    queue: str
    shares: tuple[Share, ...]
    at_once: int
    backoff: Backoff = Backoff()
    poll: timedelta = timedelta(seconds=60)
    jitter: timedelta = timedelta(seconds=15)
    start_stagger: timedelta = timedelta(0)


@dataclass(slots=True, eq=False)
class _Held:
    """A turn of ours: its lease as far as we know, the task that works it, and its outcome once there is one."""

    turn: Turn
    share: Share
    until: float
    task: asyncio.Task[None] | None = None
    outcome: Outcome | None = None
    lost: bool = False


class Consumer:
    """Works one queue until told to stop. A failing handler or a database outage never ends it."""

    def __init__(self, store: Store, policy: Policy, handler: Handler, holder: str) -> None:
        self.policy = policy
        self.wake = Wake()
        self.last_wake_reason: Reason | None = None
        self._store = store
        self._handler = handler
        self._holder = holder
        self._held: set[_Held] = set()
        self._ended: list[_Held] = []
        self._unsettled = 0
        self._has_ended = asyncio.Event()
        self._idle = asyncio.Event()
        self._stopping = False

    @property
    def running(self) -> int:
        return len(self._held)

    def stop(self) -> None:
        """No new claims; what runs may finish."""
        self._stopping = True
        self.wake.set()

    async def run(self, grace: timedelta) -> None:
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(self._renew()), group.create_task(self._settle())]
            await asyncio.sleep(random.random() * self.policy.start_stagger.total_seconds())
            await self._claim(group)
            await self._drain(grace)
            for keeper in keepers:
                keeper.cancel()

    async def _claim(self, group: asyncio.TaskGroup) -> None:
        failures = 0
        while not self._stopping:
            try:
                found = await self._claim_once(group)
                due_in = None if found else await self._due_in()
            except StoreUnavailable as error:
                failures += 1
                if failures == 1:
                    log.warning("%s: cannot claim: %s", self.policy.queue, error)
                await asyncio.sleep(OUTAGE.delay(failures).total_seconds())
                continue
            failures = 0
            if not found and not self._stopping:
                self.last_wake_reason = await self.wake.wait(
                    poll=self.policy.poll, jitter=self.policy.jitter, due_in=due_in
                )

    async def _claim_once(self, group: asyncio.TaskGroup) -> bool:
        """Whether anything was claimed, so that a further look is worth it."""
        found = False
        for share in random.sample(self.policy.shares, len(self.policy.shares)):
            free = self._free()
            if free <= 0:
                break
            sent_at = time.monotonic()
            turns = await self._store.claim(
                self.policy.queue,
                share.targets,
                limit=free,
                lease=share.lease,
                holder=self._holder,
                collect_limit=share.collect_limit,
                max_attempts=share.max_attempts,
            )
            for turn in turns:
                self._start(group, _Held(turn, share, sent_at + share.lease.total_seconds()))
            found = found or bool(turns)
        return found

    def _free(self) -> int:
        """Places for handlers; what only waits to be settled takes none, but may not pile up either."""
        working = len(self._held) - self._unsettled
        return min(self.policy.at_once - working, 2 * self.policy.at_once - len(self._held))

    def _start(self, group: asyncio.TaskGroup, held: _Held) -> None:
        self._idle.clear()
        self._held.add(held)
        held.task = group.create_task(self._work(held))

    async def _due_in(self) -> timedelta | None:
        if self._free() <= 0:
            return None
        targets = [target for share in self.policy.shares for target in share.targets]
        due_at = await self._store.next_due(self.policy.queue, targets)
        return None if due_at is None else due_at - await self._store.now()

    async def _work(self, held: _Held) -> None:
        try:
            held.outcome = self._timed(held, await self._handler(held.turn))
        except asyncio.CancelledError:
            # Lost, or stopped: whoever cancelled it sees to the turn.
            return
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an outcome of its turn
            log.info("%s: event %s failed: %r", self.policy.queue, held.turn.primary.id, error)
            held.outcome = self._timed(
                held, Retry(f"{type(error).__name__}: {error}", error_class=type(error).__name__)
            )
        self._ended.append(held)
        self._unsettled += 1
        self._has_ended.set()
        self.wake.set()

    def _timed(self, held: _Held, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Retry) and outcome.delay is None:
            delay = self.policy.backoff.delay(held.turn.primary.attempts)
            return Retry(outcome.error, delay, outcome.error_class)
        return outcome

    def _forget(self, held: _Held) -> None:
        self._held.discard(held)
        self._unsettled -= held.outcome is not None
        if not self._held:
            self._idle.set()
        # Its place, and perhaps the next event of its lane, can be claimed.
        self.wake.set()

    async def _settle(self) -> None:
        while True:
            await self._has_ended.wait()
            self._has_ended.clear()
            ended, self._ended = self._ended, []
            for share in {held.share for held in ended}:
                await self._settle_share(share, [held for held in ended if held.share is share])

    async def _settle_share(self, share: Share, ended: list[_Held]) -> None:
        """Settles together; where one end is refused, each alone, so that it fails nobody else."""
        try:
            results = await self._settle_in_time(share, ended)
        except HoldfastError as error:
            if len(ended) > 1:
                for held in ended:
                    await self._settle_share(share, [held])
            else:
                log.exception("%s: the end of event %s was refused", self.policy.queue, ended[0].turn.primary.id)
                ended[0].outcome = self._timed(ended[0], Retry(f"its end was refused: {error}", error_class="refused"))
                await self._settle_in_time(share, ended)
                self._forget(ended[0])
            return
        for held, result in zip(ended, results, strict=True):
            if isinstance(result, Lost):
                log.warning("%s: event %s was lost before it settled", self.policy.queue, held.turn.primary.id)
            self._forget(held)

    async def _settle_in_time(self, share: Share, ended: list[_Held]) -> list[Settled | Lost]:
        """Keeps trying through an outage until the leases are over; then the turns are others'."""
        ends = [(held.turn, held.outcome) for held in ended if held.outcome is not None]
        failures = 0
        while True:
            try:
                return await self._store.settle(ends, max_attempts=share.max_attempts)
            except StoreUnavailable as error:
                failures += 1
                if failures == 1:
                    log.warning("%s: cannot settle, trying until the leases are over: %s", self.policy.queue, error)
                if time.monotonic() > max(held.until for held in ended):
                    return [Lost(held.turn) for held in ended]
                await asyncio.sleep(OUTAGE.delay(failures).total_seconds())

    async def _renew(self) -> None:
        pause = min(RENEW_AT_LEAST, *(share.lease / 3 for share in self.policy.shares))
        while True:
            await asyncio.sleep(pause.total_seconds())
            for share in self.policy.shares:
                await self._renew_share(share, [held for held in self._held if held.share is share])

    async def _renew_share(self, share: Share, held: list[_Held]) -> None:
        sent_at = time.monotonic()
        try:
            lost = set(await self._store.renew([one.turn for one in held], share.lease)) if held else set()
        except HoldfastError:
            # Not renewed is not lost: the leases hold for as long as they were given.
            lost = {one.turn for one in held if one.until < sent_at}
        else:
            for one in held:
                one.until = sent_at + share.lease.total_seconds()
        for one in held:
            if one.turn in lost and one.outcome is None and one in self._held:
                self._lose(one)

    def _lose(self, held: _Held) -> None:
        log.warning("%s: event %s is another worker's now, dropped", self.policy.queue, held.turn.primary.id)
        if held.task is not None:
            held.task.cancel()
        self._forget(held)

    async def _drain(self, grace: timedelta) -> None:
        """What runs gets the grace period; the rest is given back without using an attempt."""
        if not self._held:
            return
        try:
            async with asyncio.timeout(grace.total_seconds()):
                await self._idle.wait()
        except TimeoutError:
            left = [held for held in self._held if held.outcome is None]
            log.warning("%s: %s turns did not end in time and are given back", self.policy.queue, len(left))
            tasks = [held.task for held in left if held.task is not None]
            for task in tasks:
                task.cancel()
            # Given back only once its handler has let go, or two would work it at once.
            await asyncio.wait(tasks)
            await self._store.release([held.turn for held in left])
            for held in left:
                self._forget(held)
            await self._idle.wait()
