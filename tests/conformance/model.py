"""A model of a store in plain Python: one dictionary of rows, no database, no concurrency."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import assert_never

from holdfast.message import Payload
from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Snooze
from holdfast.queue.store import DEFAULT_MAX_ATTEMPTS, Count, Filter, SweepPolicy, Swept
from holdfast.store.payload import may_share_turn
from tests.conformance.tables import DEAD_LETTERS, Held, Key, Row, Tables, blame, empty


@dataclass(slots=True)
class Model(Tables):
    """The operations that every store shares."""

    def put(self, events: Sequence[NewEvent]) -> list[int | None]:
        stored = [self.store(event, None) for event in events]
        self.promote()
        return stored

    def claimable(
        self,
        queue: str,
        targets: Iterable[str],
        *,
        collect_limit: int = 1,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> dict[str, list[tuple[int, ...]]]:
        """Per target the turns that may be claimed now, in the order in which they must be."""
        return {
            target: self._turns(queue, target, collect_limit, max_attempts) for target in targets
        }

    def claim(self, turn: Held, lease: timedelta, holder: str | None) -> None:
        """Hand out a turn that `claimable` offered, under a fence that is new."""
        if turn.fence <= 0 or turn.fence in self.fences:
            raise AssertionError(f"fence {turn.fence} was used before")
        self.fences.add(turn.fence)
        for row in (self.live[id] for id in turn.ids):
            row.attempts += 1
            row.vt = self.clock() + lease
            row.claimed += (self.clock(),)
            row.fence, row.holder = turn.fence, holder

    def renew(self, turn: Held, lease: timedelta) -> bool:
        if held := self.holds(turn):
            for id in turn.ids:
                self.live[id].vt = self.clock() + lease
        return held

    def checkpoint(self, turn: Held, state: Payload) -> bool:
        if held := self.holds(turn):
            self.live[turn.ids[0]].state = state
        return held

    def wait_for_signal(self, turn: Held) -> bool:
        """Record that a turn waits. Returns whether its first event is held."""
        row = self.live.get(turn.ids[0])
        if row is None or row.fence != turn.fence:
            return False
        self.waits.add(row.id)
        return True

    def signal(self, event_id: int) -> bool:
        if event_id not in self.live:
            return False
        primary = self.primary_of(self.live[event_id])
        if primary.id in self.waits and primary.fence == 0:
            primary.vt = min(primary.vt, self.clock())
        return True

    def settle(
        self, turn: Held, outcome: Outcome, max_attempts: int = DEFAULT_MAX_ATTEMPTS
    ) -> str | None:
        """How the turn ended, None if it was lost."""
        if not self.holds(turn):
            return None
        ended = self._end_turn([self.live[id] for id in turn.ids], outcome, max_attempts)
        self.promote()
        return ended

    def cancel(self, event_id: int, reason: str) -> bool:
        row = self.live.get(event_id)
        if row is None or not self.is_leased(row):
            return False
        mates = [mate for mate in self.live.values() if mate.fence == row.fence and mate is not row]
        row.last_error, row.error_class = f"cancelled: {reason}", None
        self.finish(row, "cancelled")
        self.give_back(mates, self.clock())
        self.promote()
        return True

    def reap(self, holder: str, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> None:
        """The process is dead: what it held is ready again, or buried."""
        held = [row for row in self.live.values() if row.holder == holder and row.fence > 0]
        self.give_back(held, self.clock())
        for row in held:
            if not self.has_attempts(row, max_attempts):
                row.last_error = f"process {holder} died"
                self.finish(row, "dead")
        self.promote()

    def sweep(self, policy: SweepPolicy) -> Swept:
        dead = self._sweep_dead(policy)
        expired = self._sweep_waiting(policy, policy.expire_after, "expired")
        discarded = self._sweep_waiting(policy, policy.discard_unserved, "discarded")
        self.promote()
        return Swept(
            dead=dead,
            expired=expired,
            discarded=discarded,
            forgotten=self._forget(policy),
            pruned=self._prune(policy),
        )

    def retry(self, which: Filter) -> list[int]:
        rows = [row for row in self.matching(which) if row.outcome in DEAD_LETTERS]
        for row in rows:
            row.attempts, row.vt, row.fence, row.holder = 0, self.clock(), 0, None
            row.head, row.outcome, row.finished_at = row.lane is None, None, None
            self.live[row.id] = self.history.pop(row.id)
            if row.message_id is not None:
                key = Key(row.id, row.parent_id, self.clock())
                self.keys.setdefault((row.queue, row.message_id), key)
        self.promote()
        return sorted(row.id for row in rows)

    def discard(self, which: Filter) -> list[int]:
        rows = [row for row in self.matching(which) if row.outcome in DEAD_LETTERS]
        for row in rows:
            row.outcome = "discarded"
            empty(row)
        return sorted(row.id for row in rows)

    def replay(self, ids: Sequence[int]) -> list[int]:
        old = [
            self.history[id]
            for id in ids
            if id in self.history and self.history[id].outcome != "discarded"
        ]
        new = [self._replay(row) for row in old]
        self.promote()
        return new

    def counts(self) -> list[Count]:
        queue_targets = sorted({(row.queue, row.target) for row in self.live.values()})
        return [self._count(queue, target) for queue, target in queue_targets]

    def outcomes(self, queue: str) -> dict[str, int]:
        ended = sorted(str(row.outcome) for row in self.history.values() if row.queue == queue)
        return {outcome: len(list(rows)) for outcome, rows in itertools.groupby(ended)}

    def _count(self, queue: str, target: str) -> Count:
        rows = [row for row in self.live.values() if (row.queue, row.target) == (queue, target)]
        free = [row for row in rows if not self.is_leased(row)]
        return Count(
            queue=queue,
            target=target,
            ready=sum(row.head and row.vt <= self.clock() for row in free),
            delayed=sum(row.head and row.vt > self.clock() for row in free),
            queued=sum(not row.head for row in free),
            leased=len(rows) - len(free),
        )

    def _replay(self, old: Row) -> int:
        new = NewEvent(event=old.event, queue=old.queue, target=old.target, lane=old.lane)
        new_id = self.store(
            replace(new, event_ts=old.event_ts, max_attempts=old.max_attempts), None
        )
        assert new_id is not None  # without a message id nothing can be there already
        if old.message_id is not None:
            self.live[new_id].message_id = message_id = f"{old.message_id}~{new_id}"
            self.keys[old.queue, message_id] = Key(new_id, None, self.clock())
        return new_id

    def _emit(self, new: NewEvent, parent: Row, position: int) -> None:
        message_id = new.message_id or f"{parent.message_id or parent.id}/{position}"
        while (
            known := self.keys.get((new.queue, message_id))
        ) is not None and known.parent_id != parent.id:
            message_id += f"~{parent.id}"
        self.store(replace(new, message_id=message_id), parent)

    def _turns(
        self, queue: str, target: str, collect_limit: int, max_attempts: int
    ) -> list[tuple[int, ...]]:
        now = self.clock()
        heads = [
            row
            for row in self.live.values()
            if row.head and (row.queue, row.target) == (queue, target)
        ]
        ready = [row for row in heads if row.vt <= now and self.has_attempts(row, max_attempts)]
        ready.sort(key=lambda row: (row.vt, row.id))
        if (queue, target) in self.limits:
            running = sum(self.is_leased(row) for row in heads)
            ready = ready[: max(0, self.limits[queue, target] - running)]
        return [(row.id, *self._followers(row, collect_limit)) for row in ready]

    def _followers(self, head: Row, collect_limit: int) -> list[int]:
        def joins(row: Row) -> bool:
            due = row.attempts == 0 and row.vt <= self.clock() and row.target == head.target
            return due and may_share_turn(head.queue, head.event, row.event)

        lane = [row for row in self.lane_of(head) if row.id > head.id]
        if head.id in self.waits and head.attempts == 0:
            behind = [row for row in lane[: collect_limit - 1] if row.attempts == 0]
            return [row.id for row in behind if self.claimed_together(head, row)]
        return (
            [row.id for row in itertools.takewhile(joins, lane)][: collect_limit - 1]
            if joins(head)
            else []
        )

    def _end_turn(self, rows: list[Row], outcome: Outcome, max_attempts: int) -> str:
        match outcome:
            case Done():
                return self._complete(rows, outcome)
            case Retry(error, delay, error_class):
                blame(rows, error, error_class)
                if len(rows) == 1 and not self.has_attempts(rows[0], max_attempts):
                    return self.finish(rows[0], "dead")
                return self.give_back(rows, self.clock() + (delay or timedelta()))
            case Dead(reason, error_class):
                blame(rows, reason, error_class)
                return (
                    self.finish(rows[0], "dead")
                    if len(rows) == 1
                    else self.give_back(rows, self.clock())
                )
            case Snooze(delay):
                for row in rows:
                    row.attempts -= 1
                return self.give_back(rows, self.clock() + delay)
            case _:
                assert_never(outcome)

    def _complete(self, rows: list[Row], outcome: Done) -> str:
        for row in rows:
            self.finish(row, "completed")
        for position, new in enumerate(outcome.emits, 1):
            self._emit(new, rows[0], position)
        return "completed"

    def _sweep_dead(self, policy: SweepPolicy) -> int:
        over = [
            row
            for row in self.live.values()
            if row.queue == policy.queue
            and not self.has_attempts(row, policy.max_attempts)
            and row.vt <= self.clock()
        ]
        return len([self.finish(row, "dead") for row in over])

    def _sweep_waiting(self, policy: SweepPolicy, age: timedelta | None, outcome: str) -> int:
        if age is None:
            return 0
        over = [
            row
            for row in self.live.values()
            if row.queue == policy.queue
            and row.head
            and row.vt < self.clock() - age
            and not self.is_leased(row)
            if row.attempts == 0 or outcome == "expired"
        ]
        for row in over:
            self.finish(row, outcome)
            if outcome == "discarded":
                empty(row)
        return len(over)

    def _forget(self, policy: SweepPolicy) -> int:
        oldest = self.clock() - policy.dedup_window
        old = [
            dedup_key
            for dedup_key, key in self.keys.items()
            if dedup_key[0] == policy.queue
            and key.seen_at < oldest
            and key.event_id not in self.live
        ]
        return len([self.keys.pop(dedup_key) for dedup_key in old])

    def _prune(self, policy: SweepPolicy) -> int:
        if policy.keep_history is None:
            return 0
        oldest = self.clock() - policy.keep_history
        old = [
            row.id
            for row in self.history.values()
            if row.queue == policy.queue and row.outcome in ("completed", "discarded")
            if row.finished_at is not None and row.finished_at < oldest
        ]
        return len([self.history.pop(id) for id in old])
