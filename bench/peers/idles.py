"""Measure what a queue does while there is little to do: pick-up, idle cost, recovery."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.latency import percentile
from bench.mention import PAYLOAD
from bench.peers.catalogue import POSTGRES, Peer
from bench.peers.measured import Measured, Size, measured, missing
from bench.peers.processes import Client, client, database, wait_until, worker
from bench.peers.side.event import Event
from bench.peers.side.handler import read
from bench.postgres import PostgresEngine
from bench.process import MEGABYTE
from holdfast.testing.databases import Databases

PER_SECOND = 20
SETTLING_SECONDS = 5
START_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Desk:
    """An empty queue, a process that puts to it, and the journal that handlers write."""

    peer: Peer
    url: str
    putter: Client
    folder: Path

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    def put(self, name: str, does: str, lane: str | None = None) -> float:
        """Put an event that does something. Returns the time at which the put began."""
        orders = {"journal": str(self.journal), "name": name, "does": does}
        gate = {"gate": str(self.folder / name)}
        return self.putter.put_one(Event(name, lane or name, PAYLOAD | orders | gate))

    def open_gate(self, name: str, attempt: int) -> None:
        """Let the handler of a waiting event go on."""
        (self.folder / f"{name}-{attempt}").touch()

    def notes(self, what: str, name: str) -> list[dict[str, Any]]:
        """Return what was noted about an event so far."""
        return [
            note for note in read(self.journal) if note["what"] == what and note["name"] == name
        ]

    def wait_for(
        self, what: str, name: str, count: int = 1, seconds: float = START_SECONDS
    ) -> bool:
        """Wait for so many notes about an event."""
        return wait_until(lambda: len(self.notes(what, name)) >= count, seconds)


@contextmanager
def desk(databases: Databases, peer: Peer) -> Iterator[Desk]:
    """Yield an empty queue."""
    with ExitStack() as stack:
        url = stack.enter_context(database(databases, peer))
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="holdfast-bench-")))
        yield Desk(peer, url, stack.enter_context(client(peer, url)), folder)


@contextmanager
def desks(databases: Databases, peers: Sequence[Peer]) -> Iterator[list[Desk]]:
    """Yield an empty queue of each peer that works with processes of its own."""
    with ExitStack() as stack:
        yield [stack.enter_context(desk(databases, peer)) for peer in peers if peer.guaranteed]


def pick_up(databases: Databases, peers: Sequence[Peer], size: Size) -> Iterator[Measured]:
    """Time from the start of a put until the handler begins in an idle worker."""
    with desks(databases, peers) as all_desks:
        for each in all_desks:
            with worker(each.peer, each.url, "best"):
                found = _pings(each, size.pings)
            for share in (0.5, 0.99):
                yield measured(
                    f"put to handler, p{share * 100:g}",
                    each.peer,
                    [percentile(found, share)],
                    "ms",
                )


def _pings(desk: Desk, count: int) -> list[float]:
    desk.put("first", "notes")
    assert desk.wait_for("begin", "first"), f"{desk.peer.name} handles nothing"
    begun, asked_at = time.monotonic(), {}
    for nth in range(count):
        time.sleep(max(begun + nth / PER_SECOND - time.monotonic(), 0))
        asked_at[f"ping-{nth}"] = desk.put(f"ping-{nth}", "notes")
    assert desk.wait_for("begin", f"ping-{count - 1}")
    wait_until(lambda: len(read(desk.journal)) >= 2 * (count + 1), START_SECONDS)
    return [
        (note["at"] - asked_at[note["name"]]) * 1000
        for note in read(desk.journal)
        if note["what"] == "begin" and note["name"] in asked_at
    ]


def idle(databases: Databases, peers: Sequence[Peer], size: Size) -> Iterator[Measured]:
    """Transactions, processor time and memory of a worker that has nothing to do."""
    with desks(databases, peers) as all_desks, ExitStack() as stack:
        workers = [stack.enter_context(worker(each.peer, each.url, "best")) for each in all_desks]
        time.sleep(SETTLING_SECONDS)
        looks = [_look(databases, each) for each in all_desks]
        busy, begun = [each.busy() for each in workers], time.perf_counter()
        time.sleep(size.idle)
        took = time.perf_counter() - begun
        for each, running, before, was in zip(all_desks, workers, looks, busy, strict=True):
            now = _look(databases, each)
            if now is not None and before is not None:
                rate = (now - before) / took
                yield measured("idle: transactions", each.peer, [rate], "1/s")
            spent = (running.busy() - was) / took * 1000
            yield measured("idle: processor time", each.peer, [spent], "ms/s")
            yield measured("idle: memory", each.peer, [running.resident() / MEGABYTE], "MB")


def _look(databases: Databases, desk: Desk) -> int | None:
    is_counted = desk.peer.store == POSTGRES
    return PostgresEngine(databases).transactions(desk.url) if is_counted else None


def recovery(databases: Databases, peers: Sequence[Peer], size: Size) -> Iterator[Measured]:
    """Time from kill -9 of a worker until another handles its event; all peers wait at once."""
    with desks(databases, peers) as all_desks:
        with ThreadPoolExecutor(len(all_desks)) as pool:
            found = list(pool.map(lambda each: _recovered(each, size.give_up_after), all_desks))
        for each, took in zip(all_desks, found, strict=True):
            case = "kill -9 until another handles it"
            if took is None:
                yield missing(case, each.peer, f"not within {size.give_up_after} s")
            else:
                yield measured(case, each.peer, [took], "s")


def _recovered(desk: Desk, give_up_after: int) -> float | None:
    """Return the seconds until the second attempt begins, None if it does not."""
    with ExitStack() as stack:
        with worker(desk.peer, desk.url, "best") as victim:
            desk.put("hung", "hangs first")
            assert desk.wait_for("begin", "hung"), f"{desk.peer.name} handles nothing"
            if not desk.peer.restarts:
                stack.enter_context(worker(desk.peer, desk.url, "best"))
            killed_at = time.time()
            victim.kill()
        if desk.peer.restarts:
            stack.enter_context(worker(desk.peer, desk.url, "best"))
        if not desk.wait_for("begin", "hung", 2, give_up_after):
            return None
    return float(desk.notes("begin", "hung")[1]["at"] - killed_at)
