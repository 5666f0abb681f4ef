"""Ending turns, within a transaction of the writer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, assert_never, cast

from holdfast.message import Payload
from holdfast.queue.event import Event, NewEvent
from holdfast.queue.outcome import Dead, Done, Lost, Outcome, Retry, Settled, Snooze
from holdfast.queue.record import Record
from holdfast.queue.store import DEAD_OUTCOMES, Acked
from holdfast.queue.turn import LeasedTurn
from holdfast.store.failure import NO_FAILURE, Failure, failure_of, stored_error
from holdfast.store.payload import dump, storable_name
from holdfast.store.readable import limit_delay
from holdfast.store.sqlite.access import audit_events
from holdfast.store.sqlite.activity import failed_frames
from holdfast.store.sqlite.claim import Leases, are_all_held, checkpoint, is_held, read_leases
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.put import keep_lines, put_emits, put_records
from holdfast.store.sqlite.rows import MICROSECOND
from holdfast.store.sqlite.writer import Writing

SQL = load()

NO_ATTEMPTS_LEFT = "no attempts left"
"""Error of a dead letter that has no other."""


@dataclass(slots=True)
class Settlement:
    """The changes of a batch of outcomes, collected and then written set by set."""

    db: Writing
    max_attempts: int
    completed: list[int] = field(default_factory=list)
    has_followers: bool = False
    ends: list[list[Any]] = field(default_factory=list)
    backs: list[list[Any]] = field(default_factory=list)
    leaving: list[Event] = field(default_factory=list)
    emits: list[tuple[Event, int, NewEvent]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    failures: list[list[Any]] = field(default_factory=list)
    ready: set[str] = field(default_factory=set)

    def add(
        self, turn: LeasedTurn, outcome: Outcome, attempts: int, max_attempts: int | None
    ) -> str:
        """Add the outcome of one turn. Returns how the turn ended."""
        match outcome:
            case Done():
                self.complete(turn, outcome)
                return "completed"
            case Snooze(delay, leave_lane):
                if leave_lane and len(turn.events) == 1:
                    self.leaving.append(turn.primary)
                return self._put_back(
                    turn, self.db.now + limit_delay(delay) // MICROSECOND, given=1
                )
            case Dead() if len(turn.events) > 1:
                # All come back with an attempt used, so that each is claimed alone next.
                return self._put_back(turn, self.db.now, failure_of(outcome))
            case Dead():
                return self._bury(turn, failure_of(outcome))
            case Retry(_, delay):
                most = self.max_attempts if max_attempts is None else max_attempts
                if attempts >= most and len(turn.events) == 1:
                    return self._bury(turn, failure_of(outcome))
                vt = self.db.now + limit_delay(delay or timedelta()) // MICROSECOND
                return self._put_back(turn, vt, failure_of(outcome))
            case _:
                assert_never(outcome)

    def complete(self, turn: LeasedTurn, outcome: Done) -> None:
        self._mark_lane_ready(turn)
        for event in turn.events:
            self.completed.append(event.id)
        if len(turn.events) > 1:
            self.has_followers = True
        if outcome.state is not None:
            checkpoint(self.db, turn, dump(outcome.state))
        self.records += outcome.records
        for position, emit in enumerate(outcome.emits, 1):
            self.emits.append((turn.primary, position, emit))
            self.ready.add(emit.queue)

    def _mark_lane_ready(self, turn: LeasedTurn) -> None:
        """Wake the queue: the end of an event makes the next one of its lane ready."""
        if turn.events[0].lane is not None:
            self.ready.add(turn.queue)

    def _bury(self, turn: LeasedTurn, failure: Failure) -> str:
        self._mark_lane_ready(turn)
        self._add_failure(turn, failure)
        error = [failure.error, failure.error_class, NO_ATTEMPTS_LEFT, failure.traceback]
        self.ends.append([turn.primary.id, "dead", *error])
        return "dead"

    def _put_back(
        self, turn: LeasedTurn, vt: int, failure: Failure = NO_FAILURE, *, given: int = 0
    ) -> str:
        self._add_failure(turn, failure)
        error = [failure.error, failure.error_class, failure.traceback]
        self.backs += [[event.id, vt, given, *error] for event in turn.events]
        if vt <= self.db.now or turn.events[0].lane is not None:
            self.ready.add(turn.queue)
        return "back"

    def _add_failure(self, turn: LeasedTurn, failure: Failure) -> None:
        if failure.error is not None:
            error = [failure.error, failure.error_class, failure.traceback]
            self.failures += [[event.id, *error] for event in turn.events]

    def write(self) -> None:
        db, connection = self.db, self.db.connection
        db.ready.update(self.ready)
        keep_attempts(db, self.failures)
        if self.completed:
            params = {"ids": dump(self.completed), "now": db.now}
            connection.execute(SQL["complete"], params)
            if self.has_followers:
                connection.execute(SQL["delete_followers"], params)
            connection.execute(SQL["delete_ended"], params)
        finish(db, self.ends)
        if self.backs:
            connection.execute(SQL["back"], {"backs": dump(self.backs), "now": db.now})
            tried = [id for id, _, given, *_ in self.backs if not given]
            db.frames.append(list(failed_frames(connection, tried, dead=False)))
        for event in self.leaving:
            _leave_lane(db, event)
        put_records(db, self.records)
        if self.emits:
            put_emits(db, self.emits)


def keep_attempts(db: Writing, failures: Sequence[list[Any]]) -> None:
    """Record failed attempts of live events. A row is [id, error, error_class, traceback]."""
    if failures:
        db.connection.execute(SQL["keep_attempts"], {"failures": dump(failures), "now": db.now})


def _leave_lane(db: Writing, event: Event) -> None:
    """Take an event out of its lane; the next one there is visible from now on.

    The trigger that gives the lane its head only knows the time of SQLite's own clock."""
    params = {"id": event.id, "queue": event.queue, "lane": event.lane, "now": db.now}
    following = db.connection.execute(SQL["next_of_lane"], params).fetchone()
    db.connection.execute(SQL["leave_lane"], params)
    if following is not None:
        next_id, vt = following
        db.connection.execute(SQL["set_vt"], {"id": next_id, "vt": max(vt, db.now)})


def finish(db: Writing, ends: Sequence[list[Any]]) -> None:
    """Move events to history.

    A row is [id, outcome, error, error_class, error if there is no other, traceback]."""
    if not ends:
        return
    params = {"ends": dump(ends), "ids": dump([id for id, *_ in ends]), "now": db.now}
    for name in ("finish", "delete_followers", "delete_ended"):
        db.connection.execute(SQL[name], params)
    dead = [id for id, outcome, *_ in ends if outcome in DEAD_OUTCOMES]
    if dead:
        keep_lines(db, dead)
    if any(outcome != "completed" for _, outcome, *_ in ends):
        db.frames.append(list(failed_frames(db.connection, [id for id, *_ in ends], dead=True)))


def settle(
    db: Writing, ends: Sequence[tuple[LeasedTurn, Outcome]], max_attempts: int
) -> list[Settled | Lost]:
    """End each turn by its outcome. Returns one result per turn; a lost turn fails no other."""
    settlement = Settlement(db, max_attempts)
    turns = [turn for turn, _ in ends]
    results: list[Settled | Lost]
    # The usual case: all are held and done, so there is no need to read their leases.
    if are_all_held(db.connection, turns) and all(isinstance(end, Done) for _, end in ends):
        for turn, done in cast(Sequence[tuple[LeasedTurn, Done]], ends):
            settlement.complete(turn, done)
        results = [Settled(turn) for turn in turns]
    else:
        leases = read_leases(db, turns)
        results = [_settle_one(settlement, leases, turn, outcome) for turn, outcome in ends]
    settlement.write()
    return results


def _settle_one(
    settlement: Settlement, leases: Leases, turn: LeasedTurn, outcome: Outcome
) -> Settled | Lost:
    if not is_held(turn, leases):
        return Lost(turn)
    _, attempts, most = leases[turn.events[0].id]
    for event in turn.events:
        del leases[event.id]
    return Settled(turn, settlement.add(turn, outcome, attempts, most))


def cancel(db: Writing, event_id: int, reason: str, actor: str | None, leased_only: bool) -> bool:
    """End an event as cancelled, and record the actor, if any.

    Other events of its turn come back at once. Returns False if the event is not live, or if it
    must be leased and is not."""
    which = {"id": event_id, "now": db.now, "leased_only": leased_only}
    found = db.connection.execute(SQL["fence_of"], which).fetchone()
    if found is None:
        return False
    queue, target, fence = found
    params = {"queue": queue, "target": target, "fence": fence, "id": event_id}
    mates = [
        [id, db.now, 0, None, None] for (id,) in db.connection.execute(SQL["turn_mates"], params)
    ]
    db.connection.execute(SQL["back"], {"backs": dump(mates), "now": db.now})
    finish(db, [[event_id, "cancelled", f"cancelled: {stored_error(reason)}", None, None]])
    audit_events(db, actor, "cancelled", [event_id])
    db.ready.add(queue)
    return True


def ack(db: Writing, event_id: int, queue: str) -> Acked:
    """Complete an event that nobody has leased; acknowledging it again changes nothing."""
    params = {"id": event_id, "queue": queue, "now": db.now}
    live = db.connection.execute(SQL["is_leased"], params).fetchone()
    if live is None:
        [is_finished] = db.connection.execute(SQL["is_finished"], params).fetchone()
        return "acked" if is_finished else "unknown"
    [is_leased] = live
    if is_leased:
        return "busy"
    finish(db, [[event_id, "completed", None, None, None]])
    db.ready.add(queue)
    return "acked"


def amend(db: Writing, event_id: int, payload: Payload | None, routed_text: str | None) -> bool:
    """Replace the payload of an event that was never claimed, or end it as discarded."""
    params = {"id": event_id, "now": db.now, "routed_text": storable_name(routed_text)}
    event = None if payload is None else dump(payload)
    found = db.connection.execute(SQL["amend"], params | {"event": event}).fetchone()
    if found is None:
        return False
    if payload is None:
        finish(db, [[event_id, "discarded", None, None, None]])
        db.ready.add(found[0])
    return True
