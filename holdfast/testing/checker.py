"""A history checker: joins what handlers wrote down with both tables and says, in sentences, what cannot be."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import psycopg

from holdfast.event import Turn
from holdfast.outcome import Settled

FINAL = ("completed", "dead")

POSTGRES_ROWS = """
select id, parent_id, cardinality(claimed), null from agent.event
union all select id, parent_id, cardinality(claimed), outcome from agent.event_hist
"""
SQLITE_ROWS = """
select id, parent_id, json_array_length(claimed), null from event
union all select id, parent_id, json_array_length(claimed), outcome from event_hist
"""


class Journal:
    """An append-only file that many processes share: each entry is one write, so that none is torn by another."""

    def __init__(self, path: Path | str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._process = os.getpid()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def start(self, turn: Turn) -> None:
        """The handler begins."""
        self._write(
            {"what": "start", "id": event.id, "lane": event.lane, "queue": event.queue, "attempt": event.attempts}
            | self._stamp(turn)
            for event in turn.events
        )

    def end(self, turn: Turn, emits: int = 0) -> None:
        """The handler is through; what follows is its settle, with so many emits."""
        # What a turn of several emits derives from its primary.
        self._write(
            {"what": "end", "id": id, "emits": emits if id == turn.primary.id else 0} | self._stamp(turn)
            for id in turn.ids
        )

    def settle(self, turn: Turn, result: object) -> None:
        """What the store answered."""
        ended = result.ended if isinstance(result, Settled) else "lost"
        self._write({"what": "settle", "id": id, "ended": ended} | self._stamp(turn) for id in turn.ids)

    def _stamp(self, turn: Turn) -> dict[str, Any]:
        # The monotonic clock is the machine's, so that the times of all its processes compare.
        return {"process": self._process, "fence": turn.fence, "at": time.monotonic_ns()}

    def _write(self, lines: Iterable[dict[str, Any]]) -> None:
        os.write(self._file, "".join(json.dumps(line) + "\n" for line in lines).encode())


@dataclass(slots=True, kw_only=True)
class Run:
    """One event under one claim: from the handler's start to what the store said at its end."""

    process: int
    id: int
    queue: str
    lane: str | None
    fence: int
    attempt: int
    started_at: int
    ended_at: int | None = None
    emits: int = 0
    settles: list[str] = field(default_factory=list)

    @property
    def ended(self) -> str | None:
        """How the store said it ended; None where nobody lived to hear it."""
        return self.settles[0] if self.settles else None

    def __str__(self) -> str:
        return f"event {self.id} (fence {self.fence}, process {self.process})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An event in a table; one without outcome is live."""

    id: int
    parent_id: int | None = None
    claims: int = 0
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What was found; a sound history has no violations."""

    violations: list[str]
    runs: int
    reruns: list[str]


def read_journal(path: Path | str) -> tuple[list[Run], list[str]]:
    """The runs in the order of their starts, and what of the journal makes no sense."""
    runs: dict[tuple[int, int], Run] = {}
    faults: list[str] = []
    # The last line may be under way still.
    for line in Path(path).read_text().rpartition("\n")[0].splitlines():
        faults += _take_in(runs, json.loads(line))
    return sorted(runs.values(), key=lambda run: (run.started_at, run.id)), faults


def _take_in(runs: dict[tuple[int, int], Run], entry: dict[str, Any]) -> Iterator[str]:
    key = entry["id"], entry["fence"]
    name = f"event {entry['id']} (fence {entry['fence']}, process {entry['process']})"
    run = runs.get(key)
    if entry["what"] == "start":
        if run is not None:
            yield f"{name} was started under a fence that process {run.process} had started it under"
        names = ("process", "id", "queue", "lane", "fence", "attempt")
        runs.setdefault(key, Run(**{field: entry[field] for field in names}, started_at=entry["at"]))
    elif run is None or run.process != entry["process"]:
        yield f"{name} has an entry '{entry['what']}' without a start"
    elif entry["what"] == "end":
        run.ended_at, run.emits = entry["at"], entry["emits"]
    else:
        run.settles.append(entry["ended"])


def read_tables(url: str) -> list[Row]:
    """All events, live and finished, read past the store."""
    found: Iterable[tuple[Any, ...]]
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(urlsplit(url).path, timeout=30)) as file:
            found = file.execute(SQLITE_ROWS).fetchall()
    else:
        with psycopg.connect(url) as server:
            found = server.execute(POSTGRES_ROWS).fetchall()
    return [Row(id=id, parent_id=parent, claims=claims, outcome=outcome) for id, parent, claims, outcome in found]


def check(
    runs: Sequence[Run],
    rows: Sequence[Row],
    stored: Iterable[int],
    *,
    leases_may_end: bool = False,
    unordered: Collection[int] = (),
) -> Report:
    """Nothing lost, one settle per claim, no overlap and no change of order within a lane.

    `stored`: the ids that put returned. `leases_may_end`: processes were killed or paused, so that a turn may be lost
    and an event run again. `unordered`: events that a person retried, or that were put at the same time as others of
    their lane; they may run out of the order of ids.
    """
    violations = [
        *_lost_or_doubled(rows, stored),
        *_settles(runs, leases_may_end),
        *_tables(runs, rows, leases_may_end),
        *_emits(runs, rows),
        *_lanes(runs, leases_may_end, unordered),
    ]
    return Report(violations, len(runs), _reruns(runs))


def _lost_or_doubled(rows: Sequence[Row], stored: Iterable[int]) -> Iterator[str]:
    places = Counter(row.id for row in rows)
    for id in sorted(set(stored) - set(places)):
        yield f"event {id} was stored and is lost: neither live nor in history"
    for id, times in sorted(places.items()):
        if times > 1:
            yield f"event {id} is there {times} times"


def _settles(runs: Sequence[Run], leases_may_end: bool) -> Iterator[str]:
    finals: Counter[int] = Counter()
    for run in runs:
        finals[run.id] += sum(settle in FINAL for settle in run.settles)
        if len(run.settles) > 1:
            yield f"{run} was settled {len(run.settles)} times: {', '.join(run.settles)}"
        if run.settles and run.ended_at is None:
            yield f"{run} was settled before its handler was through"
        if not leases_may_end and run.ended in (None, "lost"):
            yield f"{run} was {run.ended or 'never settled'}, though nobody died and no lease ran out"
    for id, times in sorted(finals.items()):
        if times > 1:
            yield f"event {id} ended {times} times"
    newest = {run.id: run for run in sorted(runs, key=lambda run: run.fence)}
    for run in runs:
        if run.ended == "completed" and newest[run.id] is not run:
            yield f"{run} completed although the turn was that of {newest[run.id]}"


def _tables(runs: Sequence[Run], rows: Sequence[Row], leases_may_end: bool) -> Iterator[str]:
    by_id = {row.id: row for row in rows}
    starts = Counter(run.id for run in runs)
    for id, times in sorted(starts.items()):
        row = by_id.get(id)
        if row is None:
            yield f"event {id} ran and is in no table"
        elif times > row.claims or (times < row.claims and not leases_may_end):
            yield f"event {id} ran {times} times and was claimed {row.claims} times"
    # The last that was told how it ended; one that lost its turn was told nothing.
    last = {run.id: run for run in runs if run.ended not in (None, "lost")}
    for id, run in sorted(last.items()):
        row = by_id.get(id)
        told = run.ended if run.ended in FINAL else None
        heard_all = not leases_may_end or run.ended in FINAL
        if row is not None and heard_all and row.outcome != told:
            yield f"{run} was told '{run.ended}' and is {row.outcome or 'live'}"


def _emits(runs: Sequence[Run], rows: Sequence[Row]) -> Iterator[str]:
    """A completed event has what its one successful run emitted, once, whatever died in between."""
    children = Counter(row.parent_id for row in rows if row.parent_id is not None)
    promised: defaultdict[int, set[int]] = defaultdict(set)
    for run in runs:
        if run.ended_at is not None and run.ended in (None, "completed"):
            promised[run.id].add(run.emits)
    for row in rows:
        there = children[row.id]
        if row.outcome == "completed" and row.id in promised and there not in promised[row.id]:
            yield f"event {row.id} emitted {there} events instead of {' or '.join(map(str, sorted(promised[row.id])))}"
        elif row.outcome != "completed" and there:
            yield f"event {row.id} is {row.outcome or 'live'} and emitted {there} events"


def _lanes(runs: Sequence[Run], leases_may_end: bool, unordered: Collection[int]) -> Iterator[str]:
    lanes: defaultdict[tuple[str, str], dict[int, list[Run]]] = defaultdict(dict)
    for run in runs:
        if run.lane is not None and not (leases_may_end and _is_overtaken(run, runs)):
            lanes[run.queue, run.lane].setdefault(run.fence, []).append(run)
    for (queue, lane), turns in sorted(lanes.items()):
        in_time = sorted(turns.values(), key=lambda turn: min(run.started_at for run in turn))
        for name, fault in (*_overlaps(in_time), *_swaps(in_time, set(unordered))):
            yield f"lane {lane} of {queue}: {name} {fault}"


def _is_overtaken(run: Run, runs: Sequence[Run]) -> bool:
    """One that lost its turn may overlap with its successor, or even start after it: that is what the fence is for."""
    return run.ended == "lost" or (
        run.ended is None
        and any(newer.id == run.id and newer.fence > run.fence and newer.started_at < run.started_at for newer in runs)
    )


def _overlaps(turns: Sequence[list[Run]]) -> Iterator[tuple[Run, str]]:
    busiest: Run | None = None
    for turn in turns:
        first = min(turn, key=lambda run: run.started_at)
        if busiest is not None and first.started_at < (busiest.ended_at or 0):
            yield first, f"started before {busiest} was through"
        # One without an end died at an unknown moment after its start.
        latest = max(turn, key=lambda run: run.ended_at or run.started_at)
        if busiest is None or (latest.ended_at or latest.started_at) > (busiest.ended_at or busiest.started_at):
            busiest = latest


def _swaps(turns: Sequence[list[Run]], unordered: Collection[int]) -> Iterator[tuple[Run, str]]:
    before: Run | None = None
    for turn in turns:
        for run in sorted((run for run in turn if run.id not in unordered), key=lambda run: run.id):
            if before is not None and run.id < before.id:
                yield run, f"ran after {before}"
            before = run


def _reruns(runs: Sequence[Run]) -> list[str]:
    """Events that ran again although nobody had put them back: what a crash or a lost lease costs."""
    by_id: defaultdict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_id[run.id].append(run)
    return [
        f"{again} ran again: {earlier} had {'lost its turn' if earlier.ended == 'lost' else 'no answer'}"
        for _, all_runs in sorted(by_id.items())
        for earlier, again in pairwise(all_runs)
        if earlier.ended in (None, "lost")
    ]
