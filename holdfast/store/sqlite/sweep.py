"""Maintenance of a SQLite store: each step ends or forgets a batch in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from sqlite3 import Connection
from typing import Any

from holdfast.queue.store import SweepPolicy
from holdfast.store.payload import dump, parse
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.rows import MICROSECOND
from holdfast.store.sqlite.settling import finish
from holdfast.store.sqlite.writer import Writing

SQL = load()

BATCH = 1000
KEYS = 10_000
ANY_ATTEMPTS = 2**31


def bury(db: Writing, policy: SweepPolicy) -> int:
    """End what has no attempts left as dead, unless its vt lies ahead: that is a lease, whoever wrote it."""
    params = {
        "queue": policy.queue,
        "max_attempts": policy.max_attempts,
        "now": db.now,
        "batch": BATCH,
    }
    ids = [id for (id,) in db.connection.execute(SQL["used_up"], params)]
    _end(db, policy.queue, [[id, "dead", None, None, "no attempts left"] for id in ids])
    return len(ids)


def expire(db: Writing, policy: SweepPolicy) -> int:
    """What was ready for too long ends as expired."""
    if policy.expire_after is None:
        return 0
    ids = _waited(db, db.now - policy.expire_after // MICROSECOND, policy, max_tried=ANY_ATTEMPTS)
    _end(db, policy.queue, [[id, "expired", None, None, "expired"] for id in ids])
    return len(ids)


def discard_unserved(db: Writing, policy: SweepPolicy) -> int:
    """What nobody ever claimed ends as discarded, its payload emptied."""
    if policy.discard_unserved is None:
        return 0
    ids = _waited(db, db.now - policy.discard_unserved // MICROSECOND, policy, max_tried=0)
    _end(db, policy.queue, [[id, "discarded", None, None, None] for id in ids])
    db.connection.execute(SQL["discard"], {"ids": dump(ids), "now": db.now})
    return len(ids)


def _end(db: Writing, queue: str, ends: list[list[Any]]) -> None:
    if ends:
        finish(db, ends)
        db.ready.add(queue)


def _waited(db: Writing, before: int, policy: SweepPolicy, *, max_tried: int) -> list[int]:
    params = {
        "queue": policy.queue,
        "max_attempts": policy.max_attempts,
        "before": before,
        "max_tried": max_tried,
    }
    ids = [id for (id,) in db.connection.execute(SQL["leased_long_ago"], params | {"batch": BATCH})]
    for (target,) in db.connection.execute(SQL["known_targets"], params).fetchall():
        left = {"target": target, "batch": BATCH - len(ids)}
        ids += [id for (id,) in db.connection.execute(SQL["waited_long"], params | left)]
    return ids


def headless_lanes(connection: Connection, queue: str) -> list[str]:
    """Lanes without a head; a reader looks for them, so that the search holds up no writer."""
    return [lane for (lane,) in connection.execute(SQL["headless_lanes"], {"queue": queue})]


def mend(db: Writing, queue: str, lanes: list[str]) -> int:
    params = [{"queue": queue, "lane": lane, "now": db.now} for lane in lanes]
    return sum(db.connection.execute(SQL["mend_lane"], each).rowcount for each in params)


@dataclass(slots=True)
class OldKeys:
    """Looks for message ids that can be forgotten: older than the dedup window, and their event not live.

    No index has them by age, it would cost every put a page. All of a queue are walked, by a reader; if they are many,
    the next walk is put off by a hundredth of the window.
    """

    now: Callable[[], int]
    _not_before: dict[str, int] = field(default_factory=dict)

    def is_due(self, policy: SweepPolicy) -> bool:
        return self.now() >= self._not_before.get(policy.queue, 0)

    def walk(
        self, connection: Connection, policy: SweepPolicy, start: str
    ) -> tuple[list[str], str | None]:
        """What is old among the next of the keys, and where the walk goes on; None at their end."""
        before = self.now() - policy.dedup_window // MICROSECOND
        params = {"queue": policy.queue, "before": before, "start": start, "count": KEYS}
        count, last, old = connection.execute(SQL["old_keys"], params).fetchone()
        if count < KEYS:
            return parse(old), None
        self._not_before[policy.queue] = self.now() + policy.dedup_window // MICROSECOND // 100
        # the least text that is greater, as no text holds a NUL
        return parse(old), last + "\x01"


def forget(db: Writing, policy: SweepPolicy, message_ids: Sequence[str]) -> int:
    before = db.now - policy.dedup_window // MICROSECOND
    params = {"queue": policy.queue, "before": before, "message_ids": dump(message_ids)}
    return db.connection.execute(SQL["forget_keys"], params).rowcount


def prune(db: Writing, policy: SweepPolicy) -> int:
    """History that need not be kept goes; dead letters never."""
    if policy.keep_history is None:
        return 0
    params = {
        "queue": policy.queue,
        "before": db.now - policy.keep_history // MICROSECOND,
        "batch": BATCH,
    }
    return db.connection.execute(SQL["prune_history"], params).rowcount


def forget_activity(db: Writing, keep: timedelta) -> int:
    params = {"before": db.now - keep // MICROSECOND, "batch": BATCH}
    return db.connection.execute(SQL["forget_activity"], params).rowcount
