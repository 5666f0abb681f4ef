"""Measure all peers, print the tables, and save JSON, charts and a page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from time import perf_counter

from rich.console import Console

from bench.peers import drains, idles, puts
from bench.peers.catalogue import PEERS, Peer
from bench.peers.measured import SIZES, Measured, Size
from bench.peers.processes import is_installed
from holdfast.testing.databases import Databases

Case = Callable[[Databases, Sequence[Peer], Size], Iterator[Measured]]
CASES: dict[str, Case] = {
    "puts": puts.puts,
    "crowd": puts.crowd,
    "drain": drains.drains,
    "growth": drains.growth,
    "pick-up": idles.pick_up,
    "idle": idles.idle,
    "recovery": idles.recovery,
}


def main() -> int:
    wanted = _arguments()
    console = Console()
    if not is_installed():
        console.print("the peers are not installed; run `make bench-peers`")
        return 2
    with closing(Databases(durable=True)) as databases:
        found = measure(databases, wanted.only or list(CASES), _peers(wanted.peer), wanted.scale)
        for each in found:
            console.print(each.case, each.peer, each.store, each.value, each.series, each.reason)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--scale", choices=list(SIZES), default="full", help="size of the run")
    parser.add_argument("--only", action="append", choices=list(CASES), help="repeatable")
    names = [peer.name for peer in PEERS]
    parser.add_argument("--peer", action="append", choices=names, help="repeatable")
    return parser.parse_args()


def _peers(names: list[str] | None) -> list[Peer]:
    return [peer for peer in PEERS if not names or peer.name in names]


def measure(
    databases: Databases, cases: Sequence[str], peers: Sequence[Peer], scale: str
) -> Iterator[Measured]:
    for name in cases:
        start = perf_counter()
        yield from CASES[name](databases, peers, SIZES[scale])
        print(f"{name} took {perf_counter() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
