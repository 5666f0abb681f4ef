"""A store and the model side by side: both take every step and must then be equal."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import asdict
from datetime import timedelta
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.errors import LeaseLost
from holdfast.message import Payload
from holdfast.queue.event import NewEvent
from holdfast.queue.journal import JournalEntry, Step
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Settled, Snooze
from holdfast.queue.store import Filter, Store, SweepPolicy
from holdfast.queue.turn import LeasedTurn
from holdfast.testing.clock import START, Clock
from tests.conformance.model import Model
from tests.conformance.peek import Peek, Seen
from tests.conformance.tables import DEAD_LETTERS, Held, Row

T = TypeVar("T")

QUEUES = ("inbox", "outbox")
TARGETS = ("", "coder", "writer")
WORKERS = ("worker-1", "worker-2", "worker-3")
LEASE = timedelta(minutes=10)

# Crowded on purpose: steps that meet in one place tell more than steps that pass by each other.
queues, targets = (
    st.sampled_from(["inbox", "inbox", "inbox", "outbox"]),
    st.sampled_from(["", "", "coder", "writer"]),
)
workers, served = (
    st.sampled_from(WORKERS),
    st.sampled_from([TARGETS, TARGETS, ("",), ("",), ("coder", "writer"), ()]),
)
delays = st.sampled_from([timedelta(), timedelta(seconds=30), timedelta(minutes=10)])
events = st.builds(
    NewEvent,
    event=st.fixed_dictionaries(
        {"text": st.sampled_from(["hi", "naïve ☃"])},
        optional={"user": st.sampled_from(["U1", "U2"])},
    ),
    queue=queues,
    target=targets,
    lane=st.sampled_from(["a", "a", "b", None]),
    message_id=st.sampled_from([None, None, None, "m1", "m2", "m1/1"]),
    max_attempts=st.sampled_from([None, None, None, 1, 2]),
)
errors = st.sampled_from([("boom", "Crash"), ("Boom again", None), (None, None)])
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(lambda emits: Done(tuple(emits)), st.lists(events, max_size=3)),
    st.builds(lambda error, delay: Retry(error[0], delay, error[1]), errors, st.none() | delays),
    st.builds(Snooze, delays),
    st.builds(Dead, st.sampled_from(["broken", "gone"]), st.sampled_from([None, "Gone"])),
)
filters = st.builds(
    Filter,
    queue=st.sampled_from([None, None, *QUEUES]),
    target=st.sampled_from([None, None, None, *TARGETS]),
    outcomes=st.sampled_from(
        [None, None, None, ("dead",), ("expired", "cancelled", "completed"), ()]
    ),
    error=st.sampled_from([None, None, None, "BOOM", "attempts"]),
)
policies = st.builds(
    SweepPolicy,
    queue=queues,
    max_attempts=st.sampled_from([1, 2, 3]),
    expire_after=st.sampled_from([None, timedelta(minutes=5), timedelta(hours=1)]),
    dedup_window=st.sampled_from([timedelta(minutes=5), timedelta(days=7)]),
    keep_history=st.sampled_from([None, timedelta(minutes=5)]),
    discard_unserved=st.sampled_from([None, None, timedelta(minutes=15)]),
)


class StoreMachine(RuleBasedStateMachine):
    """Workers hold turns; a crashed one's turns stay with it as a zombie's, to be tried later."""

    def __init__(self, store: Store, clock: Clock, peek: Peek, runner: asyncio.Runner) -> None:
        super().__init__()
        self.store, self.clock, self.peek, self.runner = store, clock, peek, runner
        clock.set(START)
        peek.clear()
        self.model = Model(clock)
        self.turns: list[LeasedTurn] = []

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(step)

    def lend_new_ids(self) -> None:
        """Ids are the store's choice: those it gave since the last look, in order."""
        known = self.model.live.keys() | self.model.history.keys()
        self.model.ids = iter(sorted(self.peek.rows("event").keys() - known))

    def pick(self, data: st.DataObject) -> LeasedTurn:
        """Mostly a turn that is held; now and then a zombie's."""
        fresh = [turn for turn in self.turns if self.model.holds(held(turn))]
        zombie = data.draw(st.integers(0, 4), label="a zombie's if 4") == 4
        return data.draw(
            st.sampled_from(self.turns if zombie or not fresh else fresh), label="turn"
        )

    @property
    def has_dead_letters(self) -> bool:
        return any(row.outcome in DEAD_LETTERS for row in self.model.history.values())

    @initialize(new=st.lists(events, min_size=3, max_size=8))
    def start(self, new: list[NewEvent]) -> None:
        self.put(new, None)

    @rule(
        new=st.lists(events, min_size=1, max_size=4),
        delay=st.sampled_from([None, None, None, timedelta(minutes=2)]),
    )
    def put(self, new: list[NewEvent], delay: timedelta | None) -> None:
        if delay:
            new = [NewEvent(**{**asdict(event), "vt": self.clock() + delay}) for event in new]
        ids = self.run(self.store.put(new))
        self.model.ids = iter([event_id for event_id in ids if event_id is not None])
        assert self.model.put(new) == ids

    @rule(
        queue=queues,
        wanted=served,
        limit=st.sampled_from([5, 1, 2, 5, 5, 0]),
        collect_limit=st.sampled_from([1, 10, 1, 2]),
        max_attempts=st.sampled_from([3, 3, 3, 1]),
        holder=workers,
    )
    def take(
        self,
        queue: str,
        wanted: tuple[str, ...],
        limit: int,
        collect_limit: int,
        max_attempts: int,
        holder: str,
    ) -> None:
        self.claim(queue, wanted, limit, collect_limit, max_attempts, holder)

    def claim(
        self,
        queue: str,
        wanted: tuple[str, ...],
        limit: int,
        collect_limit: int,
        max_attempts: int,
        holder: str,
    ) -> list[LeasedTurn]:
        # No order is promised between targets. A claim of several takes all, to be repeatable.
        limit = limit if len(wanted) < 2 else min(limit, 1) * 100
        options = {"collect_limit": collect_limit, "max_attempts": max_attempts}
        offered = self.model.claimable(queue, wanted, **options)
        how: dict[str, Any] = {"limit": limit, "lease": LEASE, "holder": holder, **options}
        turns = self.run(self.store.claim(queue, wanted, **how))
        for target in wanted:
            taken = [tuple(turn.ids) for turn in turns if turn.primary.target == target]
            assert taken == offered[target][: len(taken)], (
                f"{target!r} was offered {offered[target]}"
            )
        assert len(turns) == min(limit, sum(map(len, offered.values())))
        for turn in turns:
            self.model.claim(held(turn), LEASE, holder)
            assert [columns({**asdict(e), "event": e.event}) for e in turn.events] == [
                columns(asdict(self.model.live[e.id])) for e in turn.events
            ]
        turns.sort(key=lambda turn: turn.ids)
        self.turns = [*self.turns, *turns][-20:]
        return turns

    @precondition(lambda self: self.turns)
    @rule(
        data=st.data(),
        lease=st.sampled_from([LEASE, timedelta(minutes=1)]),
        state=st.sampled_from([None, {"ü": 1}]),
    )
    def keep(self, data: st.DataObject, lease: timedelta, state: Payload | None) -> None:
        """Renew a turn, and checkpoint it if there is something to keep."""
        turn = self.pick(data)
        kept = self.model.renew(held(turn), lease)
        assert self.run(self.store.renew([turn], lease)) == ([] if kept else [turn])
        if state is not None:
            self.model.checkpoint(held(turn), state)
            try:
                assert self.run(self.store.checkpoint(turn, state)) == self.clock() + lease
                assert kept
            except LeaseLost:
                assert not kept

    @rule(queue=queues, wanted=served, collect_limit=st.sampled_from([10, 10, 2]), delay=delays)
    def wait_for_signal(
        self, queue: str, wanted: tuple[str, ...], collect_limit: int, delay: timedelta
    ) -> None:
        """Claim turns that wait and are given back. A message comes meanwhile; a zombie cannot
        wait."""
        turns = self.claim(queue, wanted, 5, collect_limit, 3, WORKERS[0])
        for turn in [*turns, *self.turns[:1]]:
            wait = Step(key="w", state="started", attempt=1, kind="signal", signal="paid")
            is_held = self.model.wait_for_signal(held(turn))
            try:
                self.run(self.store.record(JournalEntry(turn=turn, steps=[wait])))
                assert is_held
            except LeaseLost:
                assert not is_held
        self.end([(turn, Snooze(delay)) for turn in turns], 3)
        firsts = [turn.primary for turn in turns]
        alike = [
            NewEvent(event=first.event, queue=queue, target=first.target, lane=first.lane)
            for first in firsts
        ]
        self.put(alike, None)

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def signal(self, data: st.DataObject) -> None:
        event_id = data.draw(st.sampled_from(self.pick(data).ids), label="event")
        assert self.run(self.store.signal(event_id, "paid", 1)) == self.model.signal(event_id)

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), count=st.integers(1, 3), max_attempts=st.sampled_from([3, 1]))
    def settle(self, data: st.DataObject, count: int, max_attempts: int) -> None:
        self.end(
            [(self.pick(data), data.draw(outcomes, label="outcome")) for _ in range(count)],
            max_attempts,
        )

    def end(self, ends: list[tuple[LeasedTurn, Outcome]], max_attempts: int) -> None:
        results = self.run(self.store.settle(ends, max_attempts=max_attempts))
        self.lend_new_ids()
        expected = [self.model.settle(held(turn), outcome, max_attempts) for turn, outcome in ends]
        assert [
            result.ended if isinstance(result, Settled) else None for result in results
        ] == expected
        assert [result.turn for result in results] == [turn for turn, _outcome in ends]

    @rule(
        queue=queues,
        wanted=served,
        limit=st.integers(1, 3),
        collect_limit=st.sampled_from([1, 10]),
        data=st.data(),
    )
    def work(
        self,
        queue: str,
        wanted: tuple[str, ...],
        limit: int,
        collect_limit: int,
        data: st.DataObject,
    ) -> None:
        """Claim, and settle some of the claimed turns, as a worker does."""
        turns = self.claim(queue, wanted, limit, collect_limit, 3, WORKERS[0])
        self.end([(turn, data.draw(outcomes, label="outcome")) for turn in turns[:3]], 3)

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        turn = self.pick(data)
        [result] = self.run(self.store.release([turn]))
        ended = self.model.settle(held(turn), Snooze(timedelta()))
        assert (result.ended if isinstance(result, Settled) else None) == ended

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        event_id = data.draw(st.sampled_from(self.pick(data).ids), label="event")
        assert self.run(self.store.cancel(event_id, "stop")) == self.model.cancel(event_id, "stop")

    @rule(queue=queues, of=targets, running=st.sampled_from([2, 1, None]))
    def limit(self, queue: str, of: str, running: int | None) -> None:
        self.run(self.store.limit(queue, of, running))
        self.model.limits.pop((queue, of), None)
        if running is not None:
            self.model.limits[queue, of] = running

    @rule(policy=policies)
    def sweep(self, policy: SweepPolicy) -> None:
        assert self.run(self.store.sweep(policy)) == self.model.sweep(policy)

    @precondition(lambda self: self.has_dead_letters)
    @rule(which=filters, again=st.sampled_from([True, True, False]))
    def revive(self, which: Filter, again: bool) -> None:
        """A person looks at dead letters: retry them, or discard them."""
        if again:
            assert sorted(self.run(self.store.retry(which))) == self.model.retry(which)
        else:
            assert sorted(self.run(self.store.discard(which))) == self.model.discard(which)

    @precondition(lambda self: self.model.history)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        ids = data.draw(
            st.lists(st.sampled_from(sorted(self.model.history)), max_size=2, unique=True),
            label="ids",
        )
        new = self.run(self.store.replay(ids))
        self.model.ids = iter(new)
        assert self.model.replay(ids) == new

    @rule(seconds=st.sampled_from([1, 30, 90, 600, 3600]))
    def wait(self, seconds: int) -> None:
        """Time passes: back-offs end, and so do the leases of those who crashed."""
        self.clock.tick(seconds=seconds)

    @invariant()
    def live_events_are_the_same(self) -> None:
        seen = {event_id: columns(row) for event_id, row in self.peek.rows("event").items()}
        found = differences(
            seen, {row.id: columns(asdict(row)) for row in self.model.live.values()}
        )
        assert not found, found

    @invariant()
    def history_is_the_same(self) -> None:
        seen = {event_id: ended(row) for event_id, row in self.peek.rows("event_hist").items()}
        found = differences(
            seen, {row.id: ended(asdict(row)) for row in self.model.history.values()}
        )
        assert not found, found

    @invariant()
    def counts_are_the_same(self) -> None:
        counts = self.run(self.store.counts())
        assert sorted(counts, key=lambda count: (count.queue, count.target)) == self.model.counts()

    @rule(which=filters, wanted=served)
    def read(self, which: Filter, wanted: tuple[str, ...]) -> None:
        """Compare the answers of the store, beside its tables."""
        found = self.run(self.store.finished(which, limit=1000))
        assert [ended({**asdict(event), "event": event.event}) for event in found] == [
            ended(asdict(row)) for row in self.model.matching(which)
        ]
        for queue in QUEUES:
            assert self.run(self.store.outcomes(queue)) == self.model.outcomes(queue)
            working = [
                row.id
                for row in self.model.live.values()
                if self.model.is_leased(row) and row.queue == queue
            ]
            assert sorted(event.id for event in self.run(self.store.leased(queue))) == sorted(
                working
            )
            heads = [
                r.vt
                for r in self.model.live.values()
                if r.head and r.queue == queue and r.target in wanted
            ]
            # The caller has just claimed, so it does not matter whether due events count.
            soonest = (
                min(heads, default=None),
                min((vt for vt in heads if vt > self.clock()), default=None),
            )
            assert self.run(self.store.next_due(queue, wanted)) in soonest


COLUMNS = tuple(name for name in Row.__slots__ if name not in ("outcome", "finished_at"))
# The head flag has no meaning in history.
ENDED = tuple(name for name in Row.__slots__ if name != "head")


def held(turn: LeasedTurn) -> Held:
    return Held(turn.fence, tuple(turn.ids))


def columns(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in COLUMNS}


def ended(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ENDED}


def differences(seen: Seen, expected: Seen) -> list[str]:
    """One line for every row that is missing or too many, and for every column that differs."""
    rows = [
        f"event {id} is {'missing' if id in expected else 'too many'}"
        for id in sorted(seen.keys() ^ expected.keys())
    ]
    return rows + [
        f"event {id}: {name} is {seen[id][name]!r}, not {value!r}"
        for id in sorted(seen.keys() & expected.keys())
        for name, value in expected[id].items()
        if seen[id][name] != value
    ]
