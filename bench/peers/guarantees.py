"""Probe the guarantees of each queue by running it, not by reading about it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from time import sleep
from typing import Any

import psycopg

from bench.database import read_one
from bench.peers.catalogue import POSTGRES, Peer
from bench.peers.idles import Desk, desk
from bench.peers.processes import is_pending, wait_until, worker
from holdfast.testing.databases import Databases

HAND_OVER_SECONDS = 12
MOMENT_SECONDS = 2.0
AT_ONCE = 3
"""Peers that are probed at once; a probe mostly waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of a probe."""

    peer: str
    store: str
    guarantee: str
    holds: bool
    seen: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


Seen = tuple[bool, str]


def fence(desk: Desk) -> Seen:
    """Stop a worker past its lease, hand its event over, and let it go on."""
    with worker(desk.peer, desk.url, "probe") as stopped:
        desk.put("fenced", "waits")
        if not desk.wait_for("begin", "fenced"):
            return False, "not handled"
        stopped.signal(signal.SIGSTOP)
        try:
            _expire(desk)
            with worker(desk.peer, desk.url, "probe"):
                if not desk.wait_for("begin", "fenced", 2, HAND_OVER_SECONDS):
                    return False, "never handed over"
                desk.open_gate("fenced", 1)
                stopped.signal(signal.SIGCONT)
                desk.wait_for("end", "fenced", 1, MOMENT_SECONDS)
                # The stopped worker settles now, if it may.
                accepted = wait_until(lambda: not is_pending(desk.peer, desk.url), MOMENT_SECONDS)
                desk.open_gate("fenced", 2)
                wait_until(lambda: not is_pending(desk.peer, desk.url), MOMENT_SECONDS)
        finally:
            stopped.signal(signal.SIGCONT)
    if accepted:
        return False, "the stopped worker ended what another was handling"
    return True, "the stopped worker could not end what another was handling"


def _expire(desk: Desk) -> None:
    sleep(MOMENT_SECONDS)
    if desk.peer.expire:
        with psycopg.connect(desk.url, autocommit=True) as connection:
            connection.execute(desk.peer.expire)


def order(desk: Desk) -> Seen:
    """Put two events to one lane twice: one is slow, then one fails at first."""
    with worker(desk.peer, desk.url, "probe"):
        desk.put("slow", "waits", "one lane")
        desk.put("behind slow", "notes", "one lane")
        desk.wait_for("begin", "slow")
        overtaken = desk.wait_for("begin", "behind slow", 1, MOMENT_SECONDS)
        desk.open_gate("slow", 1)
        desk.wait_for("end", "behind slow")
        desk.put("failing", "fails first", "another lane")
        desk.put("behind failing", "notes", "another lane")
        desk.wait_for("end", "behind failing", 1, HAND_OVER_SECONDS)
        retried = desk.wait_for("end", "failing", 1, HAND_OVER_SECONDS)
    if overtaken:
        return False, "the second ran beside the first"
    if not retried:
        return False, "one at a time; what failed was not retried"
    kept = desk.notes("end", "failing")[0]["at"] <= desk.notes("begin", "behind failing")[0]["at"]
    return kept, "kept over a retry" if kept else "one at a time, but a retry loses its place"


def dedup(desk: Desk) -> Seen:
    """Put an event twice before it is handled, and once after."""
    desk.put("same", "notes")
    desk.put("same", "notes")
    with worker(desk.peer, desk.url, "probe"):
        desk.wait_for("end", "same")
        wait_until(lambda: not is_pending(desk.peer, desk.url), MOMENT_SECONDS)
        desk.put("same", "notes")
        desk.put("last", "notes")
        desk.wait_for("end", "last")
        sleep(MOMENT_SECONDS / 2)
    times = len(desk.notes("begin", "same"))
    seen = {1: "once", 2: "only while it waits", 3: "none"}
    return times == 1, seen.get(times, f"handled {times} times")


def history(desk: Desk) -> Seen:
    """Handle an event and look for its payload."""
    with worker(desk.peer, desk.url, "probe"):
        desk.put("kept-in-history", "notes")
        desk.wait_for("end", "kept-in-history")
        wait_until(lambda: not is_pending(desk.peer, desk.url), MOMENT_SECONDS)
        sleep(MOMENT_SECONDS / 2)
    query = desk.peer.history
    kept = bool(query) and bool(read_one(desk.url, query, name="%kept-in-history%"))
    return kept, "kept with its payload" if kept else "not kept with its payload"


def follow_ups(desk: Desk) -> Seen:
    """Add an event in a handler, and kill the worker before it can settle."""
    desk.put("adding", "adds and dies first")
    with worker(desk.peer, desk.url, "probe"):
        if not desk.wait_for("begin", "adding"):
            return False, "not handled"
        sleep(MOMENT_SECONDS / 2)
    _expire(desk)
    with worker(desk.peer, desk.url, "probe"):
        if not desk.wait_for("end", "adding", 1, HAND_OVER_SECONDS):
            return False, "the event was lost with its worker"
        wait_until(lambda: not is_pending(desk.peer, desk.url), HAND_OVER_SECONDS)
        sleep(MOMENT_SECONDS / 2)
    times = len(desk.notes("begin", "adding-next"))
    return times == 1, "added once" if times == 1 else f"added {times} times"


PROBES: dict[str, Callable[[Desk], Seen]] = {
    "fence": fence,
    "order": order,
    "dedup": dedup,
    "history": history,
    "atomic follow-ups": follow_ups,
}


def probe(databases: Databases, peers: Sequence[Peer]) -> Iterator[Finding]:
    """Run all probes, each on a queue of its own."""
    # Servers start at their first use, which is not for several threads at once.
    databases.server(POSTGRES)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from (
            finding
            for findings in pool.map(
                lambda peer: list(_findings(databases, peer)),
                [peer for peer in peers if peer.guaranteed],
            )
            for finding in findings
        )


def _findings(databases: Databases, peer: Peer) -> Iterator[Finding]:
    for name, run in PROBES.items():
        with desk(databases, peer) as own:
            holds, seen = run(own)
        yield Finding(peer=peer.name, store=peer.store, guarantee=name, holds=holds, seen=seen)
