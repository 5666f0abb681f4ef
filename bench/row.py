"""A line of the table: what was measured, what it is held against, and whether that is enough."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

EVENTS = "events/s"

Run = Callable[[], Awaitable[float]]
"""One round of a measurement; returns its rate. What it has to prepare is not timed."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The ratio that must be reached, if any, and the one to aim for; `at_most` where less is better."""

    required: float | None
    aim: float | None = None
    at_most: bool = False

    def met_by(self, ratio: float) -> bool | None:
        """None where nothing has to be reached."""
        if self.required is None:
            return None
        return ratio <= self.required if self.at_most else ratio >= self.required


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`measured` over `beside` is the ratio; `series` is the whole curve where there is one."""

    store: str
    what: str
    measured: float
    against: str
    beside: float
    goal: Goal | None = None
    unit: str = EVENTS
    series: dict[int, float] = field(default_factory=dict)
    samples: list[list[float]] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.measured / self.beside

    @property
    def passed(self) -> bool | None:
        return None if self.goal is None else self.goal.met_by(self.ratio)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio, "passed": self.passed}


def blocking(work: Callable[..., float], *arguments: int) -> Run:
    """A run of something that is not async; nothing else runs meanwhile, and nothing should."""

    async def run() -> float:
        return work(*arguments)

    return run


async def interleaved(rounds: int, *runs: Run) -> list[list[float]]:
    """The rates of each run, all runs taking turns, so that noise on the machine hits them alike."""
    rates: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, found in zip(runs, rates, strict=True):
            found.append(await run())
    return rates


def held_to(goal: Goal, store: str, what: str, measured: float, unit: str = EVENTS) -> Row:
    """The row of what must be reached by itself, beside no other rate."""
    assert goal.required is not None
    aim = None if goal.aim is None else goal.aim / goal.required
    return Row(
        store=store,
        what=what,
        measured=measured,
        against="the most allowed" if goal.at_most else "the least wanted",
        beside=goal.required,
        goal=Goal(1.0, aim, goal.at_most),
        unit=unit,
    )


def compared(
    store: str, what: str, ours: list[float], against: str, theirs: list[float], goal: Goal | None
) -> Row:
    """The row of two runs, by their medians."""
    return Row(
        store=store,
        what=what,
        measured=median(ours),
        against=against,
        beside=median(theirs),
        goal=goal,
        samples=[ours, theirs],
    )
