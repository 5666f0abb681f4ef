"""The history of a run: all that the server did, all that handlers did, and all faults."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.queue.outcome import Lost, Outcome, Settled
from holdfast.queue.turn import LeasedTurn
from tests.conformance.tables import Row
from tests.journal import Run

SHOWN = 60
"""Entries of a failed run that are printed, of those that concern its violations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that happened, at a time of the timeline and of the server's clock."""

    at: float
    clock: datetime
    what: str
    ids: tuple[int, ...] = ()
    who: str = ""
    fence: int = 0
    ended: str = ""
    until: datetime | None = None
    attempt: int = 0
    detail: str = ""

    def __str__(self) -> str:
        parts = [f"{self.at:9.3f} s  {self.who:8} {self.what:8}"]
        parts += [f"events {', '.join(map(str, self.ids))}"] if self.ids else []
        parts += [f"fence {self.fence}"] if self.fence else []
        parts += [f"attempt {self.attempt}"] if self.attempt else []
        parts += [f"until {self.until:%H:%M:%S.%f}"] if self.until else []
        return "  ".join([*parts, *filter(None, (self.ended, self.detail))])


@dataclass(slots=True)
class History:
    """Entries in their order, the runs of handlers, and counts of what happened."""

    entries: list[Entry] = field(default_factory=list)
    runs: dict[tuple[int, int], Run] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Ids of events by message id, as puts returned them."""
    sent: Counter[str] = field(default_factory=Counter)
    """How often the platform took each part of a response."""
    unseen: set[str] = field(default_factory=set)
    """Parts that a look-up missed because they were still on their way."""
    problems: list[str] = field(default_factory=list)
    """Errors of the code under test that no handler caused."""

    def start(self, process: int, at: float, turn: LeasedTurn) -> None:
        """Note that a handler begins."""
        for event in turn.events:
            if (event.id, turn.fence) in self.runs:
                self.problems.append(f"event {event.id} ran twice under fence {turn.fence}")
            self.runs[event.id, turn.fence] = Run(
                process=process,
                id=event.id,
                queue=event.queue,
                lane=event.lane,
                fence=turn.fence,
                attempt=event.attempts,
                started_at=int(at * 1e9),
            )

    def end(self, at: float, turn: LeasedTurn, emits: int) -> None:
        """Note that a handler has an outcome."""
        for id in turn.ids:
            run = self.runs[id, turn.fence]
            run.ended_at, run.emits = int(at * 1e9), emits if id == turn.primary.id else 0

    def settled(self, turn: LeasedTurn, _: Outcome, result: Settled | Lost) -> None:
        """Note the answer to a settle."""
        for id in turn.ids:
            ended = result.ended if isinstance(result, Settled) else "lost"
            self.runs[id, turn.fence].settles.append(ended)

    def about(self, ids: set[int]) -> list[Entry]:
        """Return the entries about some events, and all faults."""
        return [entry for entry in self.entries if not entry.ids or ids.intersection(entry.ids)]

    def report(self, violations: list[str], ids: set[int]) -> str:
        """Describe a failed run in a bounded number of lines."""
        found = self.about(ids)
        rest = len(found) - SHOWN
        lines = [*violations[:20], "", "history:", *map(str, found[-SHOWN:])]
        return "\n".join([*lines, *([f"({rest} earlier entries are not shown)"] * (rest > 0))])
