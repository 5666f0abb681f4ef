"""Maintenance: each step ends or deletes one batch in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.queue.store import SweepPolicy, Swept
from holdfast.store.payload import dump, parse
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.journal import blank_journals, erase_journals
from holdfast.store.sqlite.rows import MICROSECOND
from holdfast.store.sqlite.settle import NO_ATTEMPTS_LEFT, finish
from holdfast.store.sqlite.writer import Writing

if TYPE_CHECKING:
    from holdfast.store.sqlite.store import SqliteStore

T = TypeVar("T")

SQL = load()

BATCH = 1000
KEYS = 10_000
"""Message ids that a reader examines at once."""
ANY_ATTEMPTS = 2**31


@dataclass(slots=True)
class Sweeper:
    """Runs the steps of a sweep until nothing is left to do."""

    store: SqliteStore
    now: Callable[[], int]
    _next_key_walk: dict[str, int] = field(default_factory=dict)

    async def sweep(self, policy: SweepPolicy) -> Swept:
        return Swept(
            dead=await self.in_batches(bury, policy),
            expired=await self.in_batches(expire, policy),
            discarded=await self.in_batches(discard_unserved, policy),
            repaired_lanes=await self._repair_lanes(policy.queue),
            forgotten=await self._forget_keys(policy),
            pruned=await self.in_batches(prune, policy),
        )

    async def in_batches(self, step: Callable[[Writing, T], int], argument: T) -> int:
        """Repeat a step until its batch is not full. Returns the number of rows."""
        total = 0
        while True:
            count = await self.store.write(lambda db: step(db, argument))
            total += count
            if count < BATCH:
                return total

    async def _repair_lanes(self, queue: str) -> int:
        lanes = await self.store.read(partial(find_headless_lanes, queue=queue))
        restore = partial(restore_heads, queue=queue, lanes=lanes)
        return await self.store.write(restore) if lanes else 0

    async def _forget_keys(self, policy: SweepPolicy) -> int:
        """Delete the message ids that are older than the dedup window and not of a live event.

        An index by age would cost every put a page. So a reader walks all keys of a queue. If
        there are many, the next walk is put off by a hundredth of the window."""
        if self.now() < self._next_key_walk.get(policy.queue, 0):
            return 0
        total, start = 0, ""
        while True:
            old, last = await self.store.read(
                partial(find_old_keys, policy=policy, now=self.now(), start=start)
            )
            for first in range(0, len(old), BATCH):
                batch = old[first : first + BATCH]
                total += await self.store.write(partial(forget_keys, policy=policy, keys=batch))
            if last is None:
                return total
            # The smallest text greater than `last`, as no text holds a NUL.
            start = last + "\x01"
            pause = policy.dedup_window // MICROSECOND // 100
            self._next_key_walk[policy.queue] = self.now() + pause


def bury(db: Writing, policy: SweepPolicy) -> int:
    """End events without attempts left as dead. Those whose vt lies ahead are leased, and stay."""
    params = {
        "queue": policy.queue,
        "max_attempts": policy.max_attempts,
        "now": db.now,
        "batch": BATCH,
    }
    ids = [id for (id,) in db.connection.execute(SQL["used_up"], params)]
    _end(db, policy.queue, [[id, "dead", None, None, NO_ATTEMPTS_LEFT] for id in ids])
    return len(ids)


def expire(db: Writing, policy: SweepPolicy) -> int:
    """End events that were ready for too long as expired."""
    if policy.expire_after is None:
        return 0
    before = db.now - policy.expire_after // MICROSECOND
    ids = _find_ready_since(db, before, policy, max_tried=ANY_ATTEMPTS)
    _end(db, policy.queue, [[id, "expired", None, None, "expired"] for id in ids])
    return len(ids)


def discard_unserved(db: Writing, policy: SweepPolicy) -> int:
    """End events that nobody ever claimed as discarded, and empty their payload."""
    if policy.discard_unserved is None:
        return 0
    before = db.now - policy.discard_unserved // MICROSECOND
    ids = _find_ready_since(db, before, policy, max_tried=0)
    _end(db, policy.queue, [[id, "discarded", None, None, None] for id in ids])
    db.connection.execute(SQL["discard"], {"ids": dump(ids), "now": db.now})
    blank_journals(db, ids)
    return len(ids)


def _end(db: Writing, queue: str, ends: list[list[Any]]) -> None:
    if ends:
        finish(db, ends)
        db.ready.add(queue)


def _find_ready_since(
    db: Writing, before: int, policy: SweepPolicy, *, max_tried: int
) -> list[int]:
    params = {
        "queue": policy.queue,
        "max_attempts": policy.max_attempts,
        "before": before,
        "max_tried": max_tried,
    }
    paused = [name for (name,) in db.connection.execute(SQL["paused_targets"], params)]
    if None in paused:
        return []
    leased = params | {"batch": BATCH, "paused": dump(paused)}
    ids = [id for (id,) in db.connection.execute(SQL["leased_long_ago"], leased)]
    for (target,) in db.connection.execute(SQL["known_targets"], params).fetchall():
        if target in paused:
            continue
        rest = {"target": target, "batch": BATCH - len(ids)}
        ids += [id for (id,) in db.connection.execute(SQL["waited_long"], params | rest)]
    return ids


def find_headless_lanes(connection: Connection, queue: str) -> list[str]:
    """Find lanes without a head. Run this in a reader, since the search would hold up writers."""
    return [lane for (lane,) in connection.execute(SQL["headless_lanes"], {"queue": queue})]


def restore_heads(db: Writing, queue: str, lanes: Sequence[str]) -> int:
    params = [{"queue": queue, "lane": lane, "now": db.now} for lane in lanes]
    return sum(db.connection.execute(SQL["restore_head"], each).rowcount for each in params)


def find_old_keys(
    connection: Connection, policy: SweepPolicy, now: int, start: str
) -> tuple[list[str], str | None]:
    """Examine the next message ids from `start` on.

    Returns those that can be deleted, and the last one examined: None at the end."""
    before = now - policy.dedup_window // MICROSECOND
    params = {"queue": policy.queue, "before": before, "start": start, "count": KEYS}
    count, last, old = connection.execute(SQL["old_keys"], params).fetchone()
    return parse(old), last if count == KEYS else None


def forget_keys(db: Writing, policy: SweepPolicy, keys: Sequence[str]) -> int:
    before = db.now - policy.dedup_window // MICROSECOND
    params = {"queue": policy.queue, "before": before, "message_ids": dump(keys)}
    return db.connection.execute(SQL["forget_keys"], params).rowcount


def prune(db: Writing, policy: SweepPolicy) -> int:
    """Delete history past its retention with its journals, but never a dead letter."""
    if policy.keep_history is None:
        return 0
    params = {
        "queue": policy.queue,
        "before": db.now - policy.keep_history // MICROSECOND,
        "batch": BATCH,
    }
    ids = [id for (id,) in db.connection.execute(SQL["prune_history"], params)]
    erase_journals(db, ids)
    return len(ids)


def forget_activity(db: Writing, keep: timedelta) -> int:
    params = {"before": db.now - keep // MICROSECOND, "batch": BATCH}
    return db.connection.execute(SQL["forget_activity"], params).rowcount
