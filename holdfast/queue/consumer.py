"""The one loop of every queue: claim, keep the lease, handle, settle."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.queue.lost_claims import LostClaims
from holdfast.queue.metrics import TurnMetrics
from holdfast.queue.outcome import Dead, Outcome, Retry
from holdfast.queue.policy import Policy, TargetGroup, outcome_of
from holdfast.queue.settler import OUTAGE, HeldTurn, OnSettled, Settler
from holdfast.queue.slots import Request, Slots
from holdfast.queue.store import EventQueue
from holdfast.queue.turn import LeasedTurn
from holdfast.queue.wake import Reason, Wake
from holdfast.telemetry import (
    CLAIM_FAILED,
    CLAIM_RESUMED,
    RELEASE_FAILED,
    TURN_DROPPED,
    TURNS_ABANDONED,
    TURNS_RELEASED,
)
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

Handler = Callable[[LeasedTurn], Awaitable[Outcome]]

RENEW_AT_LEAST = timedelta(seconds=10)
"""Leases are renewed at least this often, since a renewal is how a cancelled turn is noticed."""

FAILURES = (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt)
"""Errors of a handler that fail its turn; the last two would otherwise end the process."""

CHECK_LEASE_EVERY = timedelta(milliseconds=20)

WHOLE = 50
"""Slots that one claim may always fill. Of more than twice as many, it fills at most half, so that
the other half works during the next claim."""

WAKE_OTHERS_EVERY = timedelta(seconds=1)
"""Least time between wake-ups that a full process sends to others: each costs them a claim."""


class Consumer:
    """Works one queue until told to stop. A failing handler or a database outage never ends it."""

    def __init__(
        self,
        store: EventQueue,
        policy: Policy,
        handler: Handler,
        holder: str,
        on_settled: OnSettled | None = None,
    ) -> None:
        self.policy = policy
        self.wake = Wake()
        self.last_wake_reason: Reason | None = None
        self._store = store
        self._handler = handler
        self._holder = holder
        self._held: set[HeldTurn] = set()
        self._metrics = TurnMetrics(policy.queue, policy.unnamed)
        self._settler = Settler(store, policy, self._metrics, self._forget, on_settled)
        self._idle = asyncio.Event()
        self._stop = asyncio.Event()
        self._has_settled = False
        self._wake_others_at = 0.0
        self._expects = False
        self._full_since: float | None = None
        self._claiming = asyncio.Lock()
        self._lost_claims = LostClaims(
            store, policy.queue, holder, lambda: [held.turn for held in self._held], self._claiming
        )
        self._paused: frozenset[str] | None = frozenset()
        names = [target for group in policy.target_groups for target in group.targets]
        self.slots = Slots(names, each=policy.each or policy.at_once, total=policy.at_once)
        self.serve_unnamed(policy.unnamed)
        self._tasks = asyncio.TaskGroup()
        self._waiting: dict[str, deque[HeldTurn]] = {}
        self._gives_back = False

    @property
    def _batch(self) -> int:
        """Maximum number of turns per claim."""
        most = self.slots.most_claimed
        return max(most // 2, min(most, WHOLE))

    @property
    def running(self) -> int:
        return len(self._held)

    @property
    def is_paused(self) -> bool:
        """Whether any target of this queue, or the whole queue, is paused."""
        return self._paused != frozenset()

    async def is_stopping_within(self, pause: timedelta) -> bool:
        """Wait for `pause`, or until a stop is requested. Returns whether it was requested."""
        await self._pause(pause)
        return self._stop.is_set()

    def serve_unnamed(self, name: str) -> None:
        """Work messages without a target as those of `name`; '' leaves them to other processes."""
        self._unnamed = self._metrics.unnamed = name
        self._served = {
            group: {
                target: [target, ""] if target and target == name else [target]
                for target in group.targets
                if self._paused is not None and target not in self._paused
            }
            for group in self.policy.target_groups
        }
        self.wake.set()

    def pause(self, targets: frozenset[str] | None) -> None:
        """Replace the set of targets that are not claimed; None stops all claims.

        Running turns go on."""
        if targets != self._paused:
            self._paused = targets
            self.serve_unnamed(self._unnamed)

    def stop(self) -> None:
        """Claim nothing more; running turns may finish."""
        self._stop.set()
        self.wake.set()

    async def run(self, grace: timedelta) -> None:
        async with self._tasks as tasks:
            keepers = [
                tasks.create_task(self._renew()),
                tasks.create_task(self._settler.run()),
                tasks.create_task(self._lost_claims.run()),
            ]
            await self._pause(random.random() * self.policy.start_stagger)
            await self._worker()
            await self._drain(grace)
            await self._wait_for_uncancelled()
            for keeper in keepers:
                keeper.cancel()

    async def _worker(self) -> None:
        failures, away_since = 0, 0.0
        while not self._stop.is_set():
            try:
                is_idle, due_in = await self._fill_slots()
            except StoreUnavailable as error:
                failures += 1
                self._lost_claims.note_lost()
                if failures == 1:
                    away_since = time.monotonic()
                    log.warning(Entry(CLAIM_FAILED, queue=self.policy.queue, error=error))
                await self._pause(OUTAGE.delay(failures))
                continue
            if failures:
                log.info(
                    Entry(
                        CLAIM_RESUMED,
                        queue=self.policy.queue,
                        seconds=round(time.monotonic() - away_since),
                    )
                )
            failures = 0
            if is_idle and not self._stop.is_set():
                self.last_wake_reason = await self.wake.wait(
                    poll=self.policy.poll, jitter=self.policy.jitter, due_in=due_in
                )
                self._metrics.record_wake(self.last_wake_reason)

    async def _fill_slots(self) -> tuple[bool, timedelta | None]:
        """Claim for all free slots. Returns whether to wait for a wake-up, and how long at most."""
        _, was_cut = await self._claim_once()
        wake_others_in = await self._wake_others() if self.slots.is_short else None
        targets = [target for served in self._served.values() for target in self.slots.open(served)]
        if not targets:
            await self._expect_nothing()
            return True, wake_others_in
        if was_cut:
            return False, None
        await self._expect_wakeups()
        # The due time is read before the last claim, which takes events that fall due in between.
        due_at = await self._store.next_due(self.policy.queue, targets)
        has_claimed, _ = await self._claim_once()
        if has_claimed:
            return False, None
        due_in = None if due_at is None else due_at - await self._store.now()
        waits = [wait for wait in (wake_others_in, due_in) if wait is not None]
        return True, min(waits, default=None)

    async def _expect_wakeups(self) -> None:
        self._full_since = None
        if not self._expects:
            self._expects = True
            await self._store.expect(self.policy.queue)

    async def _expect_nothing(self) -> None:
        """Ask for no more wake-ups if all slots have been taken for a while."""
        now = time.monotonic()
        if self._full_since is None:
            self._full_since = now
        elif self._expects and now - self._full_since > self.policy.busy_after.total_seconds():
            self._expects = False
            await self._store.expect(self.policy.queue, is_expected=False)

    async def _wake_others(self) -> timedelta | None:
        """Wake other processes for events that we made ready and have no slots for.

        Returns when to try again."""
        now = time.monotonic()
        if not self._has_settled or now < self._wake_others_at:
            return timedelta(seconds=self._wake_others_at - now) if self._has_settled else None
        self._has_settled, self._wake_others_at = False, now + WAKE_OTHERS_EVERY.total_seconds()
        await self._store.wake(self.policy.queue)
        return None

    async def _pause(self, duration: timedelta) -> None:
        """Wait for `duration`, or until a stop is requested."""
        with suppress(TimeoutError):
            async with asyncio.timeout(duration.total_seconds()):
                await self._stop.wait()

    async def _claim_once(self) -> tuple[bool, bool]:
        """Claim once for every group of targets.

        Returns whether any turn was claimed, and whether a claim reached its limit: then there may
        be more."""
        has_claimed = was_cut = False
        for which in self.slots.rounds():
            for group in random.sample(self.policy.target_groups, len(self.policy.target_groups)):
                request = self.slots.request(self._served[group], which, self._batch)
                if request is not None and not self._stop.is_set():
                    claimed = await self._claim(group, request)
                    has_claimed |= claimed > 0
                    was_cut |= claimed == request.limit
        return has_claimed, was_cut

    async def _claim(self, group: TargetGroup, request: Request) -> int:
        since, unnamed = time.monotonic(), self._unnamed
        until = since + group.lease.total_seconds()
        async with self._claiming:
            turns = await self._store.claim(
                self.policy.queue,
                request.targets,
                limit=request.limit,
                lease=group.lease,
                holder=self._holder,
                collect_limit=group.collect_limit,
                max_attempts=group.max_attempts,
                at_most=request.at_most,
            )
            if self._stop.is_set():
                # The claim was sent before the stop: others can work these turns.
                await self._store.release(turns)
                return 0
            self._drop_claimed_again(turns)
            self._lost_claims.note_claimed(turns)
            if turns:
                self._idle.clear()
            for turn in turns:
                turn.until = until
                slot = turn.primary.target or unnamed
                self._hold(HeldTurn(turn, group, since, slot=slot))
            self._start_waiting()
        return len(turns)

    def _hold(self, held: HeldTurn) -> None:
        self._held.add(held)
        self.slots.take(held.slot)
        held.span = self._metrics.record_claim(held.turn, held.since)
        self._wait_for_slot(held)

    def _wait_for_slot(self, held: HeldTurn) -> None:
        waiting = self._waiting.get(held.slot)
        if waiting is None:
            waiting = self._waiting[held.slot] = deque()
        waiting.append(held)

    def _start_waiting(self) -> None:
        """Start claimed turns for which there are slots; the others wait for one."""
        if self._stop.is_set():
            return
        for name, waiting in list(self._waiting.items()):
            while waiting and self.slots.begin(name):
                held = waiting.popleft()
                held.task = self._tasks.create_task(self._process_event(held))
            if not waiting:
                del self._waiting[name]
        if self._waiting and not self._gives_back:
            self._gives_back = True
            self._tasks.create_task(self._give_back_late())

    async def _give_back_late(self) -> None:
        """Release turns that wait too long for a slot: another process may have one."""
        slot_wait = self.policy.wait_for_slot
        while self._waiting and not await self.is_stopping_within(slot_wait):
            late = time.monotonic() - slot_wait.total_seconds()
            await self._release_waiting(claimed_before=late)
        self._gives_back = False

    async def _release_waiting(self, claimed_before: float = math.inf) -> None:
        """Release turns that still wait for a slot, without using an attempt."""
        late = self._take_waiting(claimed_before)
        if not late:
            return
        try:
            await self._store.release([held.turn for held in late])
        except StoreUnavailable as error:
            log.warning(Entry(RELEASE_FAILED, queue=self.policy.queue, error=error))
            for held in self._held.intersection(late):
                self._wait_for_slot(held)
            self._start_waiting()
            return
        for held in late:
            self._forget(held)

    def _take_waiting(self, claimed_before: float) -> list[HeldTurn]:
        waiting = [held for turns in self._waiting.values() for held in turns]
        taken = [held for held in waiting if held.since < claimed_before]
        for held in taken:
            self._waiting[held.slot].remove(held)
            self.slots.be_cautious(held.slot)
        return taken

    async def _process_event(self, held: HeldTurn) -> None:
        raised: BaseException | None = None
        started_at = time.monotonic()
        try:
            if started_at > held.turn.until:
                await self._wait_for_lease(held)
            handling = self._handler(held.turn)
            outcome = await (handling if held.span is None else held.span.follow(handling))
        except FAILURES as error:
            if held.task is not None and held.task.cancelling():
                # The lease is lost, or the process stops: the canceller takes care of the turn.
                return
            outcome, raised = outcome_of(error), error
        if held not in self._held:
            # The lease was lost and the handler ignored its cancellation: its slot is free already.
            return
        if isinstance(outcome, (Retry, Dead)):
            self._metrics.record_failure(held.turn, outcome, held.group.max_attempts, raised)
        held.outcome = self.policy.with_backoff(held.turn, outcome)
        self.slots.finish(held.slot, time.monotonic() - started_at)
        if self._waiting:
            self._start_waiting()
        self._settler.add(held)
        self.wake.set()

    async def _wait_for_lease(self, held: HeldTurn) -> None:
        """Wait until a renewal confirms the lease; if the lease is lost, it cancels this task.

        The process may have been suspended since the claim, or the answer to the claim was late."""
        while time.monotonic() > held.turn.until:  # noqa: ASYNC110 - ended by cancellation
            await asyncio.sleep(CHECK_LEASE_EVERY.total_seconds())

    def _forget(self, held: HeldTurn) -> None:
        if held in self._held:
            self._held.remove(held)
            if held.task is None:
                with suppress(KeyError, ValueError):
                    self._waiting[held.slot].remove(held)
            self.slots.leave(
                held.slot,
                is_running=held.task is not None,
                is_finished=held.outcome is not None,
            )
            if self._waiting:
                self._start_waiting()
        self._has_settled = True
        if not self._held:
            self._idle.set()
        # The slot of the turn is free, and the next event of its lane may be ready.
        self.wake.set()

    async def _renew(self) -> None:
        pause = min(RENEW_AT_LEAST, *(group.lease / 3 for group in self.policy.target_groups))
        while True:
            await asyncio.sleep(pause.total_seconds())
            for group in self.policy.target_groups:
                await self._renew_group(group, [held for held in self._held if held.group is group])

    async def _renew_group(self, group: TargetGroup, held: list[HeldTurn]) -> None:
        sent_at = time.monotonic()
        try:
            lost = (
                set(await self._store.renew([one.turn for one in held], group.lease))
                if held
                else set()
            )
        except HoldfastError:
            # A failed renewal loses no turn yet: leases hold until they run out.
            lost = {one.turn for one in held if one.turn.until < sent_at}
        else:
            for one in held:
                one.turn.until = sent_at + group.lease.total_seconds()
        for one in held:
            if one.turn in lost and one.outcome is None and one in self._held:
                self._drop_lost(one)

    def _drop_claimed_again(self, turns: list[LeasedTurn]) -> None:
        """Drop turns whose lease ran out unnoticed and whose event we have claimed again."""
        ids = {turn.primary.id for turn in turns}
        for held in [
            held for held in self._held if held.turn.primary.id in ids and held.outcome is None
        ]:
            self._drop_lost(held)

    def _drop_lost(self, held: HeldTurn) -> None:
        log.warning(Entry(TURN_DROPPED, queue=self.policy.queue, event_id=held.turn.primary.id))
        # Code that survives the cancellation must not begin another step.
        held.turn.until = -math.inf
        self._metrics.record_loss(held.turn, held.since, held.span)
        if held.task is not None:
            held.task.cancel()
        self._forget(held)

    async def _drain(self, grace: timedelta) -> None:
        """Wait for running turns, then release the rest without using an attempt."""
        await self._release_waiting()
        if await self._is_idle_within(grace):
            return
        await self._give_back([held for held in self._held if held.outcome is None])
        if not await self._is_idle_within(self.policy.let_go_within):
            log.warning(Entry(TURNS_ABANDONED, queue=self.policy.queue, turns=len(self._held)))

    async def _wait_for_uncancelled(self) -> None:
        """Wait for handlers that ignore cancellation: they keep their lease, and settle."""
        running = [
            held.task for held in self._held if held.task is not None and not held.task.done()
        ]
        if running:
            await asyncio.wait(running)
            await self._is_idle_within(self.policy.let_go_within)

    async def _is_idle_within(self, limit: timedelta) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit.total_seconds()):
                while self._held:
                    await self._idle.wait()
        return not self._held

    async def _give_back(self, left: list[HeldTurn]) -> None:
        log.warning(Entry(TURNS_RELEASED, queue=self.policy.queue, turns=len(left)))
        tasks = [held.task for held in left if held.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self.policy.let_go_within.total_seconds())
        # Release only turns whose handler has stopped; otherwise two workers would run one at once.
        free = [
            held
            for held in left
            if held.outcome is None and (held.task is None or held.task.done())
        ]
        try:
            async with asyncio.timeout(self.policy.let_go_within.total_seconds()):
                await self._store.release([held.turn for held in free])
        except (StoreUnavailable, TimeoutError) as error:
            log.warning(Entry(RELEASE_FAILED, queue=self.policy.queue, error=error))
            return
        for held in free:
            self._forget(held)
