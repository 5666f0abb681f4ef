"""Claiming, keeping and settling turns in SQLite, within a transaction of the writer's."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from sqlite3 import Connection
from typing import Any, assert_never

from holdfast.errors import LeaseLost
from holdfast.event import INBOX, Event, NewEvent, Record, Turn
from holdfast.outcome import Dead, Done, Lost, Outcome, Retry, Settled, Snooze
from holdfast.store.base import COLLECT_BYTES, Acked
from holdfast.store.collector import uncollected
from holdfast.store.payload import dump, parse
from holdfast.store.sqlite.activity import failed
from holdfast.store.sqlite.put import put_emits, put_records
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.rows import MICROSECOND, claimed_of, stored_of
from holdfast.store.sqlite.writer import Writing

SQL = load()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a consumer asks for."""

    queue: str
    targets: Sequence[str]
    limit: int
    lease: timedelta
    holder: str | None
    collect_limit: int
    max_attempts: int


@uncollected
def claim(db: Writing, wanted: Claim) -> list[Turn]:
    connection, now = db.connection, db.now
    heads = _ready(connection, now, wanted)
    if not heads:
        return []
    followers = _followers(connection, now, wanted, heads) if wanted.collect_limit > 1 else {}
    [last_fence] = connection.execute(SQL["next_fence"], {"turns": len(heads)}).fetchone()
    params = {
        "heads": dump(heads),
        "first_fence": last_fence - len(heads) + 1,
        "until": now + wanted.lease // MICROSECOND,
        "now": now,
        "holder": wanted.holder,
    }
    connection.execute(SQL["claim_heads"], params)
    behind = [[id, fence] for fence, head in enumerate(heads, params["first_fence"]) for id in followers.get(head, ())]
    if behind:
        connection.execute(SQL["claim_followers"], params | {"followers": dump(behind)})
    ids = dump(heads + [id for id, _ in behind])
    columns = connection.execute(SQL["claimed"], {"ids": ids}).fetchone()
    return _turns(wanted.queue, claimed_of(columns, wanted.queue, params["until"], wanted.holder, now))


def events(connection: Connection, ids: Sequence[int]) -> list[Event]:
    return [stored_of(row) for row in connection.execute(SQL["events"], {"ids": dump(ids)})]


def _turns(queue: str, claimed: Sequence[Event]) -> list[Turn]:
    of_fence: dict[int, tuple[Event, ...]] = {}
    for event in claimed:
        of_fence[event.fence] = (*of_fence.get(event.fence, ()), event)
    return [Turn(queue, fence, of_fence[fence]) for fence in sorted(of_fence)]


def _ready(connection: Connection, now: int, wanted: Claim) -> list[int]:
    """The heads to claim, each target within its limit; in random order, so that a long backlog leaves others room."""
    limits: dict[str, int] = dict(connection.execute(SQL["limits"], {"queue": wanted.queue}).fetchall())
    unnamed = _limit_of_unnamed(connection, wanted.queue) if limits else ""
    places = {
        limit: running - _running(connection, now, wanted.queue, {limit, ""} if limit == unnamed else {limit})
        for limit, running in limits.items()
        if limit in {target or unnamed for target in wanted.targets}
    }
    targets = list(dict.fromkeys(wanted.targets))
    heads: list[int] = []
    for target in random.sample(targets, len(targets)):
        limit = target or unnamed
        room = min(wanted.limit - len(heads), places.get(limit, wanted.limit))
        found = _waiting(connection, now, wanted, target, room) if room > 0 else []
        if limit in places:
            places[limit] -= len(found)
        heads += found
    return heads


def _limit_of_unnamed(connection: Connection, queue: str) -> str:
    """Messages that name no agent count for the default agent."""
    row = connection.execute(SQL["default_target"]).fetchone() if queue == INBOX else None
    return str(row[0] or "") if row else ""


def _running(connection: Connection, now: int, queue: str, targets: Collection[str]) -> int:
    params = [{"queue": queue, "target": target, "now": now} for target in targets]
    return sum(connection.execute(SQL["running"], one).fetchone()[0] for one in params)


def _waiting(connection: Connection, now: int, wanted: Claim, target: str, limit: int) -> list[int]:
    """What of one target may be claimed, longest waiting first."""
    params = {"queue": wanted.queue, "target": target, "now": now, "limit": limit, "max_attempts": wanted.max_attempts}
    [text] = connection.execute(SQL["claim_ready"], params).fetchone()
    waiting: list[int] = parse(text)
    return waiting


def _followers(connection: Connection, now: int, wanted: Claim, heads: Sequence[int]) -> dict[int, list[int]]:
    fresh = connection.execute(SQL["fresh_heads"], {"ids": dump(heads)}).fetchall()
    return {head: _run_behind(connection, now, wanted, head, lane, target, size) for head, lane, target, size in fresh}


def _run_behind(
    connection: Connection, now: int, wanted: Claim, head: int, lane: str, target: str, size: int
) -> list[int]:
    params = {"queue": wanted.queue, "lane": lane, "head": head, "limit": wanted.collect_limit - 1}
    run: list[int] = []
    for id, its_target, attempts, vt, its_size in connection.execute(SQL["behind"], params):
        size += its_size
        if its_target != target or attempts > 0 or vt > now or size > COLLECT_BYTES:
            break
        run.append(id)
    return run


Held = dict[int, tuple[int, int, int | None]]


def held(connection: Connection, turns: Sequence[Turn]) -> Held:
    """The leases on these turns' events, whoever has them: by id, (fence, attempts, max_attempts)."""
    ids = [event.id for turn in turns for event in turn.events]
    found, *leases = map(parse, connection.execute(SQL["held"], {"ids": dump(ids)}).fetchone())
    return dict(zip(found, zip(*leases, strict=True), strict=True))


def is_held(turn: Turn, there: Held) -> bool:
    for event in turn.events:
        lease = there.get(event.id)
        if lease is None or lease[0] != turn.fence:
            return False
    return True


def renew(db: Writing, turns: Sequence[Turn], lease: timedelta) -> list[Turn]:
    there = held(db.connection, turns)
    ids = [event.id for turn in turns if is_held(turn, there) for event in turn.events]
    params = {"ids": dump(ids), "until": db.now + lease // MICROSECOND, "now": db.now}
    db.connection.execute(SQL["renew"], params)
    return [turn for turn in turns if not is_held(turn, there)]


def checkpoint(db: Writing, turn: Turn, state: str) -> int:
    if not is_held(turn, held(db.connection, [turn])):
        raise LeaseLost(f"the lease on event {turn.primary.id} is lost; drop the work")
    params = {"id": turn.primary.id, "fence": turn.fence, "state": state, "now": db.now}
    [vt] = db.connection.execute(SQL["checkpoint"], params).fetchone()
    return int(vt)


@dataclass(slots=True)
class Settlement:
    """What a batch of outcomes comes to, gathered before it is written set by set."""

    now: int
    max_attempts: int
    completed: list[int] = field(default_factory=list)
    has_followers: bool = False
    ends: list[list[Any]] = field(default_factory=list)
    backs: list[list[Any]] = field(default_factory=list)
    emits: list[tuple[Event, int, NewEvent]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    ready: set[str] = field(default_factory=set)

    def add(self, turn: Turn, outcome: Outcome, attempts: int, max_attempts: int | None) -> str:
        """Take in one turn's outcome; says how the turn ended."""
        # the end of an event makes the next of its lane ready
        if turn.events[0].lane is not None:
            self.ready.add(turn.queue)
        match outcome:
            case Done():
                self._done(turn, outcome)
                return "completed"
            case Snooze(delay):
                return self._back(turn, self.now + delay // MICROSECOND, given=1)
            case Dead() if len(turn.events) > 1:
                # all come back as they are, with an attempt used: each is claimed alone next
                return self._back(turn, self.now, *_error(outcome))
            case Dead():
                return self._dead(turn, *_error(outcome))
            case Retry(_, delay):
                most = self.max_attempts if max_attempts is None else max_attempts
                if attempts >= most and len(turn.events) == 1:
                    return self._dead(turn, *_error(outcome))
                return self._back(turn, self.now + (delay or timedelta()) // MICROSECOND, *_error(outcome))
            case _:
                assert_never(outcome)

    def _done(self, turn: Turn, outcome: Done) -> None:
        for event in turn.events:
            self.completed.append(event.id)
        if len(turn.events) > 1:
            self.has_followers = True
        self.records += outcome.records
        for position, emit in enumerate(outcome.emits, 1):
            self.emits.append((turn.primary, position, emit))
            self.ready.add(emit.queue)

    def _dead(self, turn: Turn, error: str | None, error_class: str | None) -> str:
        self.ends.append([turn.primary.id, "dead", error, error_class, "no attempts left"])
        return "dead"

    def _back(
        self, turn: Turn, vt: int, error: str | None = None, error_class: str | None = None, *, given: int = 0
    ) -> str:
        self.backs += [[event.id, vt, given, error, error_class] for event in turn.events]
        if vt <= self.now:
            self.ready.add(turn.queue)
        return "back"

    def write(self, db: Writing) -> None:
        connection = db.connection
        db.ready.update(self.ready)
        if self.completed:
            params = {"ids": dump(self.completed), "now": db.now}
            connection.execute(SQL["complete"], params)
            if self.has_followers:
                connection.execute(SQL["delete_followers"], params)
            connection.execute(SQL["delete_ended"], params)
        finish(db, self.ends)
        if self.backs:
            connection.execute(SQL["back"], {"backs": dump(self.backs), "now": self.now})
            came_back = [id for id, _, given, *_ in self.backs if not given]
            db.frames.append(list(failed(connection, came_back, dead=False)))
        put_records(db, self.records)
        if self.emits:
            put_emits(db, self.emits)


def _error(outcome: Dead | Retry) -> tuple[str | None, str | None]:
    error = outcome.reason if isinstance(outcome, Dead) else outcome.error
    # an error's text may hold the broken bytes that caused it; they must not keep the turn from ending
    return None if error is None else error.encode(errors="replace").decode(), outcome.error_class


def finish(db: Writing, ends: Sequence[list[Any]]) -> None:
    """Move events to history; rows are [id, outcome, error, error_class, error if there is none at all]."""
    if not ends:
        return
    params = {"ends": dump(ends), "ids": dump([id for id, *_ in ends]), "now": db.now}
    for name in ("finish", "delete_followers", "delete_ended"):
        db.connection.execute(SQL[name], params)
    if any(outcome != "completed" for _, outcome, *_ in ends):
        db.frames.append(list(failed(db.connection, [id for id, *_ in ends], dead=True)))


@uncollected
def settle(db: Writing, ends: Sequence[tuple[Turn, Outcome]], max_attempts: int) -> list[Settled | Lost]:
    there = held(db.connection, [turn for turn, _ in ends])
    settlement = Settlement(db.now, max_attempts)
    results: list[Settled | Lost] = []
    for turn, outcome in ends:
        if not is_held(turn, there):
            results.append(Lost(turn))
            continue
        if isinstance(outcome, Done) and outcome.state is not None:
            checkpoint(db, turn, dump(outcome.state))
        _, attempts, most = there[turn.events[0].id]
        results.append(Settled(turn, settlement.add(turn, outcome, attempts, most)))
        for event in turn.events:
            del there[event.id]
    settlement.write(db)
    return results


def cancel(db: Writing, event_id: int, reason: str) -> bool:
    found = db.connection.execute(SQL["leased_fence"], {"id": event_id, "now": db.now}).fetchone()
    if found is None:
        return False
    queue, target, fence = found
    params = {"queue": queue, "target": target, "fence": fence, "id": event_id}
    mates = [[id, db.now, 0, None, None] for (id,) in db.connection.execute(SQL["turn_mates"], params)]
    db.connection.execute(SQL["back"], {"backs": dump(mates), "now": db.now})
    finish(db, [[event_id, "cancelled", f"cancelled: {reason}", None, None]])
    db.ready.add(queue)
    return True


def ack(db: Writing, event_id: int, queue: str) -> Acked:
    params = {"id": event_id, "queue": queue, "now": db.now}
    found = db.connection.execute(SQL["is_leased"], params).fetchone()
    if found is None:
        [known] = db.connection.execute(SQL["is_finished"], params).fetchone()
        return "acked" if known else "unknown"
    [leased] = found
    if leased:
        return "busy"
    finish(db, [[event_id, "completed", None, None, None]])
    db.ready.add(queue)
    return "acked"
