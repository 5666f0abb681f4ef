"""Check a history: join the journal of handlers with both tables and describe violations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tests.journal import Row, Run

FINAL = ("completed", "dead")


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a check; a sound history has no violations."""

    violations: list[str]
    runs: int
    reruns: list[str]


def check(
    runs: Sequence[Run],
    rows: Sequence[Row],
    stored: Iterable[int],
    *,
    may_die: bool = False,
    leases_may_end: bool = False,
    unordered: Collection[int] = (),
) -> Report:
    """Check that nothing is lost, each claim is settled once, and each lane runs in order.

    `stored`: the ids that put returned. `may_die`: processes were killed or cut off, so that a
    settle may get no answer and an event may run again, but never beside another run of its lane.
    `leases_may_end`: processes were suspended or the clock was set, so that a lease may end under
    its living holder. Only then may a run that lost its turn overlap with newer ones.
    `unordered`: events that a person retried, or that were put at the same time as others of
    their lane; they may run out of the order of ids.
    """
    may_die = may_die or leases_may_end
    violations = [
        *_lost_or_doubled(rows, stored),
        *_settles(runs, may_die),
        *_tables(runs, rows, may_die),
        *_emits(runs, rows),
        *_lanes(_valid_parts(runs) if leases_may_end else runs, unordered),
    ]
    return Report(violations, len(runs), _reruns(runs))


def _lost_or_doubled(rows: Sequence[Row], stored: Iterable[int]) -> Iterator[str]:
    copies = Counter(row.id for row in rows)
    for id in sorted(set(stored) - set(copies)):
        yield f"event {id} was stored and is lost: neither live nor in history"
    for id, times in sorted(copies.items()):
        if times > 1:
            yield f"event {id} is there {times} times"


def _settles(runs: Sequence[Run], may_die: bool) -> Iterator[str]:
    finals: Counter[int] = Counter()
    for run in runs:
        finals[run.id] += sum(settle in FINAL for settle in run.settles)
        if len(run.settles) > 1:
            yield f"{run} was settled {len(run.settles)} times: {', '.join(run.settles)}"
        if run.settles and run.ended_at is None:
            yield f"{run} was settled before its handler was through"
        if not may_die and run.ended in (None, "lost"):
            ended = run.ended or "never settled"
            yield f"{run} was {ended}, though nobody died and no lease ran out"
    for id, times in sorted(finals.items()):
        if times > 1:
            yield f"event {id} ended {times} times"
    newest = {run.id: run for run in sorted(runs, key=lambda run: run.fence)}
    for run in runs:
        if run.ended == "completed" and newest[run.id] is not run:
            yield f"{run} completed although the turn was that of {newest[run.id]}"


def _tables(runs: Sequence[Run], rows: Sequence[Row], may_die: bool) -> Iterator[str]:
    by_id = {row.id: row for row in rows}
    starts = Counter(run.id for run in runs)
    for id, times in sorted(starts.items()):
        row = by_id.get(id)
        if row is None:
            yield f"event {id} ran and is in no table"
        elif times > row.claims or (times < row.claims and not may_die):
            yield f"event {id} ran {times} times and was claimed {row.claims} times"
    # The last run of each event that got an answer to its settle.
    last = {run.id: run for run in runs if run.ended not in (None, "lost")}
    for id, run in sorted(last.items()):
        row = by_id.get(id)
        expected = run.ended if run.ended in FINAL else None
        is_certain = not may_die or run.ended in FINAL
        if row is not None and is_certain and row.outcome != expected:
            yield f"{run} was settled as '{run.ended}' and is {row.outcome or 'live'}"


def _emits(runs: Sequence[Run], rows: Sequence[Row]) -> Iterator[str]:
    """A completed event has the emits of its one successful run, once, whatever died meanwhile."""
    children = Counter(row.parent_id for row in rows if row.parent_id is not None)
    promised: defaultdict[int, set[int]] = defaultdict(set)
    for run in runs:
        if run.ended_at is not None and run.ended in (None, "completed"):
            promised[run.id].add(run.emits)
    for row in rows:
        there = children[row.id]
        if row.outcome == "completed" and row.id in promised and there not in promised[row.id]:
            expected = " or ".join(map(str, sorted(promised[row.id])))
            yield f"event {row.id} emitted {there} events instead of {expected}"
        elif row.outcome != "completed" and there:
            yield f"event {row.id} is {row.outcome or 'live'} and emitted {there} events"


def _valid_parts(runs: Sequence[Run]) -> Iterator[Run]:
    """Cut each run to the time in which it held the turn: until a newer run of its events began.

    A run that began later than that was suspended between claim and start, and held nothing. The
    fence must have refused its settle."""
    newer: defaultdict[int, list[Run]] = defaultdict(list)
    mates: defaultdict[int, set[int]] = defaultdict(set)
    for run in runs:
        newer[run.id].append(run)
        mates[run.fence].add(run.id)
    for run in runs:
        # Events that were collected are lost together, and worked one by one again.
        overtaken = [
            other.started_at
            for id in mates[run.fence]
            for other in newer[id]
            if other.fence > run.fence
        ]
        if run.ended not in (None, "lost") or not overtaken:
            yield run
        elif run.started_at < min(overtaken):
            ends = None if run.ended_at is None else min(run.ended_at, *overtaken)
            yield replace(run, ended_at=ends)


def _lanes(runs: Iterable[Run], unordered: Collection[int]) -> Iterator[str]:
    lanes: defaultdict[tuple[str, str], dict[int, list[Run]]] = defaultdict(dict)
    for run in runs:
        if run.lane is not None:
            lanes[run.queue, run.lane].setdefault(run.fence, []).append(run)
    for (queue, lane), turns in sorted(lanes.items()):
        in_time = sorted(turns.values(), key=lambda turn: min(run.started_at for run in turn))
        for name, fault in (*_overlaps(in_time), *_swaps(in_time, set(unordered))):
            yield f"lane {lane} of {queue}: {name} {fault}"


def _overlaps(turns: Sequence[list[Run]]) -> Iterator[tuple[Run, str]]:
    busiest: Run | None = None
    for turn in turns:
        first = min(turn, key=lambda run: run.started_at)
        if busiest is not None and first.started_at < (busiest.ended_at or 0):
            yield first, f"started before {busiest} was through"
        # A run without an end died at an unknown moment after its start.
        latest = max(turn, key=lambda run: run.ended_at or run.started_at)
        if busiest is None or (latest.ended_at or latest.started_at) > (
            busiest.ended_at or busiest.started_at
        ):
            busiest = latest


def _swaps(turns: Sequence[list[Run]], unordered: Collection[int]) -> Iterator[tuple[Run, str]]:
    before: list[Run] = []
    for turn in turns:
        ordered = sorted((run for run in turn if run.id not in unordered), key=lambda run: run.id)
        # Events that were collected and failed are worked one by one, from the first on.
        mates = {run.id for run in before}
        for run in ordered:
            if before and run.id < before[-1].id and run.id not in mates:
                yield run, f"ran after {before[-1]}"
        before = ordered or before


def _reruns(runs: Sequence[Run]) -> list[str]:
    """Describe events that ran again because of a crash or a lost lease."""
    by_id: defaultdict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_id[run.id].append(run)
    return [
        f"{again} ran again: {earlier} had "
        + ("lost its turn" if earlier.ended == "lost" else "no answer")
        for _, all_runs in sorted(by_id.items())
        for earlier, again in pairwise(all_runs)
        if earlier.ended in (None, "lost")
    ]
