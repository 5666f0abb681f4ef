"""What a measurement needs of a database: fresh ones, a loaded backlog, and the engine's own limits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from bench.row import Goal
from bench.workload import Shape

AT_A_MILLION = Goal(0.6, 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """What a store must reach of its engine's raw rates, and at 1,000,000 of its own rate at 1,000."""

    put_one: Goal
    drain_batch: Goal
    put_eight: Goal | None = None
    put_eight_over_one: Goal | None = None
    put_bulk: Goal | None = None
    backlog: Goal = AT_A_MILLION
    worker_drain: Goal | None = None
    worker_rate: Goal | None = None
    """Events per second, whatever the engine does."""
    pick_up_half: Goal | None = None
    """Milliseconds, the median."""
    pick_up_99: Goal


class Raw(Protocol):
    """The engine without us, on the same server or disk and with the same payload; each returns events per second."""

    def put_one(self, count: int) -> float:
        """One-row inserts, each with its commit, from one connection."""

    def put_eight(self, count: int) -> float:
        """The same from eight connections."""

    def put_bulk(self, count: int) -> float:
        """All rows in one transaction, by the quickest way in."""

    def drain(self, events: int, batch: int) -> float:
        """Claim a batch, then move it to a history table, each with its commit. Loading is not timed."""

    def write_back(self) -> None:
        """Bring what was put, ours and theirs, from the log to its place: not while a drain is timed. A server does
        so in its own time."""

    def close(self) -> None:
        """Let go of the connections."""


class Engine(Protocol):
    """A database engine under measurement."""

    name: str
    goals: Goals

    def fresh(self) -> AbstractContextManager[str]:
        """The URL of a migrated, empty database that keeps what it commits."""

    def load(self, url: str, shape: Shape, count: int) -> None:
        """Put a backlog there, quickly and past the store; nothing of it is written back later."""

    def raw(self, url: str) -> Raw:
        """The raw baselines, beside our tables in that database."""

    def transactions(self, url: str) -> int | None:
        """How many that database has seen so far, None where nobody counts."""

    def version(self) -> str:
        """Which engine this is."""


def rate(count: int, work: Callable[[], object]) -> float:
    """Events per second of some work."""
    start = perf_counter()
    work()
    return count / (perf_counter() - start)
