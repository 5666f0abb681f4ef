"""Protocols of a measured engine: fresh databases, a loaded backlog, raw rates and goals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from bench.row import Goal
from bench.workload import CHANNELS, Shape

AT_A_MILLION = Goal(0.6, 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """Ratios that a store must reach: to its engine's raw rates, and over a growing backlog."""

    put_one: Goal
    drain_batch: Goal
    put_eight: Goal | None = None
    put_eight_over_one: Goal | None = None
    put_bulk: Goal | None = None
    backlog: Goal = AT_A_MILLION
    worker_drain: Goal | None = None
    worker_rate: Goal | None = None
    """Events per second; not a ratio."""
    pick_up_half: Goal | None = None
    """Median in milliseconds; not a ratio."""
    pick_up_99: Goal


class Raw(Protocol):
    """Rates of the engine without us, on the same server or disk, with the same payload.

    Each method returns events per second."""

    def put_one(self, count: int) -> float:
        """Insert rows one by one, each with its commit, from one connection."""

    def put_eight(self, count: int) -> float:
        """Insert rows one by one from eight connections."""

    def put_bulk(self, count: int) -> float:
        """Insert all rows in one transaction, the fastest way."""

    def drain(self, events: int, batch: int) -> float:
        """Claim a batch, then move it to a history table, each with its commit.

        Loading is not timed."""

    def write_back(self) -> None:
        """Checkpoint the write-ahead log, so that this does not happen while a drain is timed.

        Only SQLite needs it: a server does so in the background."""

    def close(self) -> None:
        """Close the connections."""


class Engine(Protocol):
    """A measured database engine."""

    name: str
    goals: Goals

    def fresh(self) -> AbstractContextManager[str]:
        """Yield the URL of a migrated, empty and durable database."""

    def load(self, url: str, shape: Shape, count: int, channels: int = CHANNELS) -> None:
        """Load a backlog directly, without the store, and checkpoint it."""

    def raw(self, url: str) -> Raw:
        """Yield the raw baselines, in tables beside ours in that database."""

    def transactions(self, url: str) -> int | None:
        """Return the number of transactions so far, or None if the engine does not count them."""

    def version(self) -> str:
        """Return the engine's name and version."""


def rate(count: int, work: Callable[[], object]) -> float:
    """Return the events per second of some work."""
    start = perf_counter()
    work()
    return count / (perf_counter() - start)
