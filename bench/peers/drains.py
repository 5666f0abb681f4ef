"""Measure a worker that drains, over a growing backlog too."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from bench.__main__ import ENGINES
from bench.peers.catalogue import HOLDFAST, POSTGRES, Peer
from bench.peers.measured import Measured, Size, measured, missing
from bench.peers.processes import client, database, is_pending, wait_until, worker
from bench.peers.side.event import CHANNELS
from bench.peers.side.handler import STEP, read
from bench.workload import Shape
from holdfast.testing.databases import Databases

DRAIN_SECONDS = 120
GROWTH_SECONDS = 40
GROWTH = 5 * STEP
SLOW = ("DBOS", "Absurd", "Procrastinate")
"""Drain fewer events: their rates are far below a thousand a second."""


def drains(databases: Databases, peers: Sequence[Peer], size: Size) -> Iterator[Measured]:
    """Drain what one process put, by one worker, with default and with best settings."""
    for mode in ("default", "best"):
        samples: list[list[float]] = [[] for _ in peers]
        for nth in range(size.rounds):
            for peer, found in zip(peers, samples, strict=True):
                with database(databases, peer) as url:
                    found += _drained(peer, url, mode, _amount(peer, mode, size), nth)
        for peer, found in zip(peers, samples, strict=True):
            what = f"drain, {mode} settings"
            yield (
                measured(what, peer, found)
                if found
                else missing(what, peer, f"not done in {DRAIN_SECONDS} s")
            )


def _amount(peer: Peer, mode: str, size: Size) -> int:
    return size.slow if peer.name in SLOW or mode == "default" else size.drained


def _drained(peer: Peer, url: str, mode: str, count: int, nth: int) -> list[float]:
    """Return the rate after the first events until nothing waits, empty if it takes too long."""
    with client(peer, url) as putter:
        putter.put((nth + 1) * 1_000_000, count, 1, count)
    _settle_down(peer, url)
    with _noted() as progress, worker(peer, url, mode, progress):
        assert wait_until(progress.exists, DRAIN_SECONDS), f"{peer.name} handles nothing"
        # Look for pending events only after the last was handled: each look loads the server.
        done = wait_until(lambda: handled(progress) >= count, DRAIN_SECONDS) and wait_until(
            lambda: not is_pending(peer, url), DRAIN_SECONDS
        )
        ended_at = time.time()
        notes = read(progress)
    # A worker claims its first batch before its first handler begins, so that batch is not timed.
    warm = next((note for note in notes if note["handled"] >= STEP), notes[0])
    return [(count - warm["handled"]) / (ended_at - warm["at"])] if done else []


def growth(databases: Databases, peers: Sequence[Peer], size: Size) -> Iterator[Measured]:
    """Claim, handle and settle while more and more events wait."""
    for peer in peers:
        if not peer.load and peer.side != HOLDFAST:
            continue
        series = {}
        for backlog in size.backlogs:
            with database(databases, peer) as url:
                _fill(databases, peer, url, backlog)
                series[backlog] = _rate_of_some(peer, url)
        yield Measured(
            case="drain of a growing backlog",
            peer=peer.name,
            store=peer.store,
            samples=[series[max(series)]],
            series=series,
        )


def _fill(databases: Databases, peer: Peer, url: str, count: int) -> None:
    if peer.side == HOLDFAST:
        ENGINES[peer.store](databases).load(url, Shape.MANY, count, CHANNELS)
        return
    with client(peer, url) as putter:
        putter.put(1, 1)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(peer.load, {"count": count})
    _settle_down(peer, url)


def _rate_of_some(peer: Peer, url: str) -> float:
    """Return the rate of a worker with its best settings, without its first events."""
    with _noted() as progress, worker(peer, url, "best", progress):
        wait_until(lambda: handled(progress) >= STEP + GROWTH, GROWTH_SECONDS)
        notes = read(progress)
    warm = [note for note in notes if note["handled"] >= STEP]
    if len(warm) < 2:
        return 0.0
    return float((warm[-1]["handled"] - warm[0]["handled"]) / (warm[-1]["at"] - warm[0]["at"]))


def handled(progress: Path) -> int:
    """Return how many events a worker has handled, in steps."""
    notes = read(progress)
    return int(notes[-1]["handled"]) if notes else 0


def _settle_down(peer: Peer, url: str) -> None:
    """Vacuum and write a checkpoint, so that neither happens while a worker is timed."""
    if peer.store == POSTGRES:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("vacuum analyze")
            connection.execute("checkpoint")


@contextmanager
def _noted() -> Iterator[Path]:
    with TemporaryDirectory(prefix="holdfast-bench-") as folder:
        yield Path(folder, "progress")
