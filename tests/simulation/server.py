"""The simulated server: the model of a store with a clock of its own, sessions and wake-ups."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.errors import LeaseLost
from holdfast.message import Payload
from holdfast.queue.event import INBOX, OUTBOX, Event, NewEvent
from holdfast.queue.outcome import Done, Lost, Outcome, Settled, Snooze
from holdfast.queue.store import DEFAULT_MAX_ATTEMPTS, SweepPolicy, Swept
from holdfast.queue.turn import LeasedTurn
from holdfast.store.payload import dump
from tests.conformance.model import Model
from tests.conformance.tables import Held, Row
from tests.simulation.history import Entry, History
from tests.simulation.timeline import Timeline

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class RecordedModel(Model):
    """The model, with a record of what it does, and the columns that it leaves out."""

    time: Callable[[], float] = lambda: 0.0
    entries: list[Entry] = field(default_factory=list)
    written: dict[int, tuple[NewEvent, datetime]] = field(default_factory=dict)

    def record(self, what: str, *, index: int | None = None, **fields: Any) -> None:
        """Append an entry, or insert it before the entries of its effects."""
        entry = Entry(at=self.time(), clock=self.clock(), what=what, **fields)
        self.entries.insert(len(self.entries) if index is None else index, entry)

    def store(self, new: NewEvent, parent: Row | None) -> int | None:
        stored = Model.store(self, new, parent)
        if stored is not None:
            self.written[stored] = new, self.clock()
            self.record("put", ids=(stored,), detail=f"{new.queue} {self.live[stored].lane}")
        return stored

    def claim(self, turn: Held, lease: timedelta, holder: str | None) -> None:
        Model.claim(self, turn, lease, holder)
        row = self.live[turn.ids[0]]
        self.record(
            "claim",
            who=holder or "",
            ids=turn.ids,
            fence=turn.fence,
            until=row.vt,
            attempt=row.attempts,
        )

    def renew(self, turn: Held, lease: timedelta) -> bool:
        if renewed := Model.renew(self, turn, lease):
            self.record("renew", ids=turn.ids, fence=turn.fence, until=self.clock() + lease)
        return renewed

    def checkpoint(self, turn: Held, state: Payload) -> bool:
        if kept := Model.checkpoint(self, turn, state):
            self.record("keep", ids=turn.ids, fence=turn.fence)
        return kept

    def settle(
        self, turn: Held, outcome: Outcome, max_attempts: int = DEFAULT_MAX_ATTEMPTS
    ) -> str | None:
        index = len(self.entries)
        ended = Model.settle(self, turn, outcome, max_attempts)
        how = {"ended": ended or "refused", "detail": type(outcome).__name__}
        self.record("settle", index=index, ids=turn.ids, fence=turn.fence, **how)
        return ended

    def finish(self, row: Row, outcome: str) -> str:
        self.record("finish", ids=(row.id,), ended=outcome, attempt=row.attempts)
        return Model.finish(self, row, outcome)

    def reap(self, holder: str, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> None:
        held = tuple(row.id for row in self.live.values() if row.holder == holder and row.fence)
        self.record("reap", who=holder, ids=held)
        Model.reap(self, holder, max_attempts)


class Server:
    """The operations of a store as they happen at the server, each at one moment."""

    def __init__(self, timeline: Timeline, history: History) -> None:
        self.timeline = timeline
        self.history = history
        self.step = timedelta()
        self.model = RecordedModel(self.clock, time=lambda: timeline.now, entries=history.entries)
        self.settings: dict[str, Any] = {}
        self.sessions: set[str] = set()
        self.processes: set[str] = set()
        self.looker: str | None = None
        self.up_since = float("-inf")
        self.on_ready: Callable[[str], None] = lambda _: None
        self._fences = itertools.count(1)

    def clock(self) -> datetime:
        return START + timedelta(seconds=self.timeline.now) + self.step

    def put(self, events: Sequence[NewEvent]) -> list[int | None]:
        stored = self.model.put(events)
        for queue in {event.queue: None for event in events}:
            self.on_ready(queue)
        return stored

    def claim(
        self,
        queue: str,
        targets: Sequence[str],
        *,
        limit: int,
        lease: timedelta,
        holder: str | None,
        collect_limit: int,
        max_attempts: int,
        at_most: Sequence[int | None] | None,
    ) -> list[LeasedTurn]:
        offered = self.model.claimable(
            queue, targets, collect_limit=collect_limit, max_attempts=max_attempts
        )
        if at_most is None:
            targets = random.sample(targets, len(targets))
        turns: list[LeasedTurn] = []
        for ids in _chosen(offered, targets, at_most, limit):
            fence = next(self._fences)
            self.model.claim(Held(fence, ids), lease, holder)
            turns.append(LeasedTurn(queue, fence, tuple(map(self.event, ids))))
        return turns

    def event(self, id: int) -> Event:
        """Return a live event as a store reads it."""
        row = self.model.live[id]
        new, created_at = self.model.written[id]
        names = [name for name in Row.__slots__ if name not in ("event", "outcome", "finished_at")]
        return Event(
            **{name: getattr(row, name) for name in names},
            payload=dump(row.event),
            created_at=created_at,
            updated_at=self.clock(),
            sent_by=new.sent_by,
            routed_text=new.routed_text,
            routed_team=new.routed_team,
        )

    def renew(self, turns: Sequence[LeasedTurn], lease: timedelta) -> list[LeasedTurn]:
        return [turn for turn in turns if not self.model.renew(held(turn), lease)]

    def checkpoint(self, turn: LeasedTurn, state: Payload) -> datetime:
        if not self.model.checkpoint(held(turn), state):
            raise LeaseLost(f"event {turn.primary.id} is another worker's now")
        return self.model.live[turn.primary.id].vt

    def settle(
        self, ends: Sequence[tuple[LeasedTurn, Outcome]], max_attempts: int
    ) -> list[Settled | Lost]:
        results: list[Settled | Lost] = []
        for turn, outcome in ends:
            ended = self.model.settle(held(turn), outcome, max_attempts)
            results.append(Lost(turn) if ended is None else Settled(turn, ended))
            if ended is not None and isinstance(outcome, Done) and outcome.state is not None:
                self.model.history[turn.primary.id].state = outcome.state
        self._ring_for(ends)
        return results

    def _ring_for(self, ends: Sequence[tuple[LeasedTurn, Outcome]]) -> None:
        """Wake processes for what became ready: emits, and the next events of the lanes."""
        queues = [new.queue for _, end in ends if isinstance(end, Done) for new in end.emits]
        lanes = {(turn.queue, turn.primary.lane) for turn, _ in ends if turn.primary.lane}
        queues += [row.queue for row in self.model.live.values() if (row.queue, row.lane) in lanes]
        for queue in dict.fromkeys(queues):
            self.on_ready(queue)

    def release(self, turns: Sequence[LeasedTurn]) -> list[Settled | Lost]:
        ends: list[tuple[LeasedTurn, Outcome]] = [(turn, Snooze(timedelta())) for turn in turns]
        return self.settle(ends, DEFAULT_MAX_ATTEMPTS)

    def held(self, queue: str, holder: str) -> list[LeasedTurn]:
        turns: dict[int, list[int]] = {}
        for row in self.model.live.values():
            if (row.queue, row.holder) == (queue, holder) and self.model.is_leased(row):
                turns.setdefault(row.fence, []).append(row.id)
        return [
            LeasedTurn(queue, fence, tuple(map(self.event, sorted(ids))))
            for fence, ids in turns.items()
        ]

    def next_due(self, queue: str, targets: Sequence[str]) -> datetime | None:
        now = self.clock()
        return min(
            (
                row.vt
                for row in self.model.live.values()
                if row.head and row.queue == queue and row.target in targets and row.vt > now
            ),
            default=None,
        )

    def handed_on(self, root_id: int, before_id: int) -> int:
        return sum(
            row.root_id == root_id and row.id < before_id and row.hops > 0 and row.queue == INBOX
            for table in (self.model.live, self.model.history)
            for row in table.values()
        )

    def sweep(self, policy: SweepPolicy) -> Swept:
        return self.model.sweep(policy)

    def look(self, looker: str, grace: float) -> list[str] | None:
        """Return the processes without a session; None if another process is the looker."""
        if self.looker not in self.sessions:
            self.looker = looker
        if self.looker != looker or self.timeline.now < self.up_since + grace:
            return None
        return sorted(self.processes - self.sessions)

    def reap(self, dead: Sequence[str], max_attempts: dict[str, int]) -> list[str]:
        """Release the turns of processes that are still silent."""
        gone = [process for process in dead if process in self.processes - self.sessions]
        for process in gone:
            self.processes.discard(process)
            self.model.reap(process, max_attempts[INBOX])
        for queue in (INBOX, OUTBOX) if gone else ():
            self.on_ready(queue)
        return gone


def held(turn: LeasedTurn) -> Held:
    return Held(turn.fence, tuple(turn.ids))


def _chosen(
    offered: dict[str, list[tuple[int, ...]]],
    targets: Sequence[str],
    at_most: Sequence[int | None] | None,
    limit: int,
) -> list[tuple[int, ...]]:
    """Choose turns target by target; None as a limit shares that of the target before."""
    chosen: list[tuple[int, ...]] = []
    left = limit
    for number, target in enumerate(targets):
        most = None if at_most is None else at_most[number]
        left = left if most is None and at_most is not None else (most or limit)
        taken = offered[target][: min(left, limit - len(chosen))]
        left -= len(taken)
        chosen += taken
    return chosen
