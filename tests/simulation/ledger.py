"""The checker of a simulated run: follows every event through the entries of the server."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from tests.checker import check
from tests.conformance.tables import Row
from tests.journal import Row as TableRow
from tests.journal import Run
from tests.simulation.history import Entry, History

DEFECTS = ("AttributeError", "KeyError", "NameError", "NotImplementedError", "TypeError")
"""Classes of errors that no simulated agent raises: the code under test failed, or what simulates
its surroundings."""
RECOVERY = 2.0
"""Leases that a process may still lose after its trouble is over, in lengths of a lease."""

Violation = tuple[str, tuple[int, ...]]
"""A line, and the events that it concerns."""
Spans = Mapping[str, Sequence[tuple[float, float]]]


@dataclass(slots=True)
class Lease:
    """The lease of an event as the entries tell it."""

    fence: int
    holder: str
    since: float
    until: datetime


class Ledger:
    """Reads entries in order and describes what should not have happened."""

    def __init__(self, rows: Mapping[int, Row], troubled: Spans, lease: float) -> None:
        self._rows = rows
        self._troubled = troubled
        self._recovery = RECOVERY * lease
        self._lanes: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        self._leases: dict[int, Lease] = {}
        self._attempts: Counter[int] = Counter()
        self._buried: set[int] = set()
        self._ended: set[int] = set()
        self._fences: set[int] = set()
        self._gone: set[str] = set()
        self.lost_at: dict[int, float] = {}
        """When turns were lost, by their fence."""

    def read(self, entries: Sequence[Entry]) -> Iterator[Violation]:
        """Yield each violation, with the events that it concerns."""
        for entry in entries:
            reader = getattr(self, f"_{entry.what}", None)
            for fault in () if reader is None else reader(entry):
                yield f"{entry.at:.3f} s: {fault}", entry.ids

    def _lane(self, id: int) -> set[int]:
        """Return the live events of the lane of an event."""
        row = self._rows[id]
        return {id} if row.lane is None else self._lanes[row.queue, row.lane]

    def _put(self, entry: Entry) -> Iterator[str]:
        [id] = entry.ids
        self._lane(id).add(id)
        yield from ()

    def _claim(self, entry: Entry) -> Iterator[str]:
        if entry.fence in self._fences:
            yield f"fence {entry.fence} was used twice"
        self._fences.add(entry.fence)
        before = [id for id in self._lane(entry.ids[0]) if id < entry.ids[0]]
        if before:
            yield f"event {entry.ids[0]} was claimed before {before} of its lane had ended"
        for id in sorted(self._lane(entry.ids[0]) | set(entry.ids)):
            yield from self._claim_beside(entry, id)
        if entry.attempt != self._attempts[entry.ids[0]] + 1:
            attempts = self._attempts[entry.ids[0]]
            yield f"event {entry.ids[0]} has attempt {entry.attempt} after {attempts} used ones"
        assert entry.until is not None
        for id in entry.ids:
            self._attempts[id] += 1
            self._leases[id] = Lease(entry.fence, entry.who, entry.at, entry.until)

    def _claim_beside(self, entry: Entry, id: int) -> Iterator[str]:
        if id in self._ended:
            yield f"event {id} was claimed after its end"
        if (lease := self._leases.get(id)) is None:
            return
        if lease.until > entry.clock:
            yield f"event {id} was still leased under fence {lease.fence}"
        elif id in entry.ids:
            yield from self._lose(entry, id, lease)
            self._forget_turn(lease.fence)

    def _forget_turn(self, fence: int) -> None:
        """A turn that lost one of its events is lost as a whole, also if the clock goes back."""
        for id in [id for id, lease in self._leases.items() if lease.fence == fence]:
            del self._leases[id]

    def _lose(self, entry: Entry, id: int, lease: Lease) -> Iterator[str]:
        """A process without any trouble loses no turn."""
        self.lost_at.setdefault(lease.fence, entry.at)
        spans = [*self._troubled.get(lease.holder, ()), *self._troubled.get("", ())]
        is_troubled = any(
            start <= entry.at and lease.since <= end + self._recovery for start, end in spans
        )
        if not is_troubled and lease.holder not in self._gone:
            yield f"{lease.holder} was well and lost event {id} (fence {lease.fence})"

    def _renew(self, entry: Entry) -> Iterator[str]:
        yield from self._check_holder(entry)
        for id in entry.ids:
            if id in self._leases and entry.until is not None:
                self._leases[id].until = entry.until

    def _keep(self, entry: Entry) -> Iterator[str]:
        yield from self._check_holder(entry)

    def _check_holder(self, entry: Entry) -> Iterator[str]:
        for id in entry.ids:
            lease = self._leases.get(id)
            if lease is None or lease.fence != entry.fence:
                of = "nobody's" if lease is None else f"that of fence {lease.fence}"
                yield f"fence {entry.fence} did {entry.what} event {id}, which was {of}"

    def _settle(self, entry: Entry) -> Iterator[str]:
        if entry.ended == "refused":
            if not list(self._check_holder(entry)):
                yield f"the settle of events {entry.ids} (fence {entry.fence}) was refused"
            return
        yield from self._check_holder(entry)
        for id in entry.ids:
            self._leases.pop(id, None)
            self._attempts[id] -= entry.detail == "Snooze"
        if entry.detail == "Dead":
            self._buried.update(entry.ids)

    def _reap(self, entry: Entry) -> Iterator[str]:
        for id in entry.ids:
            if (lease := self._leases.pop(id, None)) is not None:
                yield from self._lose(entry, id, lease)

    def _finish(self, entry: Entry) -> Iterator[str]:
        [id] = entry.ids
        if id in self._ended:
            yield f"event {id} ended twice"
        lease = self._leases.pop(id, None)
        if lease is not None:
            self.lost_at.setdefault(lease.fence, entry.at)
        if lease is not None and lease.until > entry.clock:
            yield f"event {id} was swept as {entry.ended} under a live lease"
        has_attempts = self._attempts[id] < (self._rows[id].max_attempts or 0)
        if entry.ended == "dead" and id not in self._buried and has_attempts:
            yield f"event {id} is dead after {self._attempts[id]} attempts"
        self._ended.add(id)
        self._lane(id).discard(id)

    def _kill(self, entry: Entry) -> Iterator[str]:
        self._gone.add(entry.who)
        yield from ()

    def _stop(self, entry: Entry) -> Iterator[str]:
        """A graceful stop leaves nothing leased."""
        left = [id for id, lease in self._leases.items() if lease.holder == entry.who]
        for id in left:
            yield from self._lose(entry, id, self._leases[id])
        self._gone.add(entry.who)


def violations(
    history: History, troubled: Spans, lease: float, *, clocks_differed: bool
) -> list[Violation]:
    """Check a whole run. Returns each violation with the events that it concerns."""
    ledger = Ledger(history.rows, troubled, lease)
    found: list[Violation] = [(problem, ()) for problem in history.problems]
    found += list(ledger.read(history.entries))
    rows = [
        TableRow(id=row.id, parent_id=row.parent_id, claims=len(row.claimed), outcome=row.outcome)
        for row in history.rows.values()
    ]
    runs = sorted(_held(history, ledger.lost_at), key=lambda run: (run.started_at, run.id))
    stored = history.acknowledged.values()
    report = check(runs, rows, stored, may_die=True, leases_may_end=True)
    found += [(line, _ids(line)) for line in report.violations]
    found += [
        (f"event {row.id} never ended: it is stuck", (row.id,))
        for row in history.rows.values()
        if row.outcome is None
    ]
    found += [
        (f"event {row.id} failed: {row.last_error}", (row.id,))
        for row in history.rows.values()
        if row.error_class in DEFECTS
    ]
    found += list(_messages(history))
    return found + list(_deliveries(history, clocks_differed))


def _held(history: History, lost_at: Mapping[int, float]) -> Iterator[Run]:
    """Cut each run to the time in which it held its turn, by the entries of the server."""
    for run in history.runs.values():
        lost = int(lost_at.get(run.fence, float(10**9)) * 1e9)
        if run.started_at < lost:
            yield replace(run, ended_at=None if run.ended_at is None else min(run.ended_at, lost))


def _ids(line: str) -> tuple[int, ...]:
    words = line.replace(":", " ").split()
    return tuple(
        int(number) for word, number in pairwise(words) if word == "event" and number.isdigit()
    )


def _messages(history: History) -> Iterator[Violation]:
    """Every message is one event, however often it was put."""
    names = Counter(row.message_id for row in history.rows.values() if row.message_id)
    for name, times in names.items():
        if times > 1:
            yield f"message {name} is there {times} times", ()


def _deliveries(history: History, clocks_differed: bool) -> Iterator[Violation]:
    """Every part of a completed response was sent, and once if the platform could tell.

    It cannot tell of a request that is still on its way; and where clocks differed, a process may
    send after the end of its lease."""
    for row in history.rows.values():
        for key in (row.state or {}).get("parts") or {}:
            if row.outcome == "completed" and not history.sent[key]:
                yield f"part {key} of event {row.id} was never sent", (row.id,)
            is_excused = clocks_differed or key in history.unseen
            if history.sent[key] > 1 and not is_excused:
                yield f"part {key} of event {row.id} was sent {history.sent[key]} times", (row.id,)
