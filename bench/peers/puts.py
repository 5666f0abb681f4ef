"""Measure durable puts: one by one, by tasks, by processes, in bulk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count as counting
from time import perf_counter

from bench.peers.catalogue import Peer
from bench.peers.measured import Measured, Size, measured
from bench.peers.processes import Client, client, database
from holdfast.testing.databases import Databases

TASKS = 8
PROCESSES = 8
SPACE = 1_000_000
"""Numbers that a process may put, so that no two put the same event."""


def puts(databases: Databases, peers: Sequence[Peer], size: Size) -> Iterator[Measured]:
    """Put by one process: one by one, by eight tasks, in bulk."""
    ways = {
        "put one by one": (size.puts, 1, 1),
        "put by 8 tasks": (size.puts * 2, TASKS, 1),
        f"put {size.bulk:,} at once": (size.bulk, 1, size.bulk),
    }
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                client(peer, stack.enter_context(database(databases, peer)), connections)
            )
            for peer in peers
            for connections in (TASKS,)
        ]
        for what, (count, tasks, batch) in ways.items():
            samples: list[list[float]] = [[] for _ in peers]
            # The first round fills caches and does not count.
            for nth in range(size.rounds + 1):
                for found, putter in zip(samples, clients, strict=True):
                    took = putter.put(_first(), count if nth else tasks, tasks, batch)
                    found += [count / took] if nth else []
            yield from (
                measured(what, peer, found) for peer, found in zip(peers, samples, strict=True)
            )


def crowd(databases: Databases, peers: Sequence[Peer], size: Size) -> Iterator[Measured]:
    """Put by eight processes with eight connections and as many tasks each."""
    for peer in peers:
        with ExitStack() as stack:
            url = stack.enter_context(database(databases, peer))
            clients = [stack.enter_context(client(peer, url, TASKS)) for _ in range(PROCESSES)]
            _together(clients, TASKS)
            samples = [_together(clients, size.puts) for _ in range(size.rounds)]
        yield measured("put by 64 connections in 8 processes", peer, samples)


_numbers = counting(1)


def _first() -> int:
    """Return the first of SPACE numbers that no process has put yet."""
    return next(_numbers) * SPACE


def _together(clients: Sequence[Client], count: int) -> float:
    """Return the total rate of all clients, each of which puts `count` events."""
    begun = perf_counter()
    for putter in clients:
        putter.begin(_first(), count, TASKS)
    for putter in clients:
        putter.end()
    return count * len(clients) / (perf_counter() - begun)
