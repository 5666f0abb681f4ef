"""A row of the table: a measurement, its baseline, and whether the ratio is enough."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

EVENTS = "events/s"

Run = Callable[[], Awaitable[float]]
"""One round of a measurement. Returns its rate, without the time of preparations."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The required ratio, if any, and the one to aim for; `at_most` if less is better."""

    required: float | None
    aim: float | None = None
    at_most: bool = False

    def met_by(self, ratio: float) -> bool | None:
        """Return whether a ratio is enough, or None if nothing is required."""
        if self.required is None:
            return None
        return ratio <= self.required if self.at_most else ratio >= self.required


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row; its ratio is `measured` over `beside`. `series` is the whole curve, if any."""

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
    """Make a run of a synchronous function. It blocks the loop, and nothing else should run."""

    async def run() -> float:
        return work(*arguments)

    return run


async def interleave(rounds: int, *runs: Run) -> list[list[float]]:
    """Return the rates of each run. The runs take turns, so that noise affects them alike."""
    rates: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, found in zip(runs, rates, strict=True):
            found.append(await run())
    return rates


def compare_to_goal(goal: Goal, store: str, what: str, measured: float, unit: str = EVENTS) -> Row:
    """Return a row that compares a measurement with a fixed number."""
    assert goal.required is not None
    aim = None if goal.aim is None else goal.aim / goal.required
    return Row(
        store=store,
        what=what,
        measured=measured,
        against="maximum allowed" if goal.at_most else "minimum required",
        beside=goal.required,
        goal=Goal(1.0, aim, goal.at_most),
        unit=unit,
    )


def compare_runs(
    store: str, what: str, ours: list[float], against: str, theirs: list[float], goal: Goal | None
) -> Row:
    """Return a row that compares the medians of two runs."""
    return Row(
        store=store,
        what=what,
        measured=median(ours),
        against=against,
        beside=median(theirs),
        goal=goal,
        samples=[ours, theirs],
    )
