"""Measure all peers, print the tables, and save JSON, charts and tables (`make bench-peers`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from time import perf_counter

from rich.console import Console

from bench.__main__ import FOLDER
from bench.peers import drains, idles, puts
from bench.peers.catalogue import PEERS, Peer
from bench.peers.guarantees import probe
from bench.peers.measured import SIZES, Measured, Size
from bench.peers.processes import is_installed
from bench.peers.report import Report
from bench.postgres import PostgresEngine
from bench.sqlite import SqliteEngine
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
GUARANTEES = "guarantees"


def main(arguments: Sequence[str] | None = None) -> int:
    wanted = _parser().parse_args(arguments)
    console = Console()
    if not is_installed():
        console.print("the peers are not installed; run `make bench-peers`")
        return 2
    peers = [peer for peer in PEERS if not wanted.peer or peer.name in wanted.peer]
    given = " ".join(sys.argv[1:] if arguments is None else arguments)
    command = f'make bench-peers ARGS="{given}"' if given else "make bench-peers"
    with closing(Databases(durable=True)) as databases:
        engines = [PostgresEngine(databases).version(), SqliteEngine(databases).version()]
        report = Report(wanted.scale, command, engines, peers)
        paths: list[Path] = []
        for name in wanted.only or [*CASES, GUARANTEES]:
            _run(name, databases, report, console)
            # A long run that is interrupted keeps what it measured.
            paths = report.save(FOLDER)
    console.print(report.markdown(), soft_wrap=True, markup=False, highlight=False)
    for path in paths:
        console.print(f"saved {path}")
    if wanted.publish:
        report.publish(FOLDER)
    return 0


def _run(name: str, databases: Databases, report: Report, console: Console) -> None:
    begun = perf_counter()
    if name == GUARANTEES:
        report.findings += probe(databases, report.peers)
    else:
        report.measured += CASES[name](databases, report.peers, SIZES[report.scale])
    report.note_case(name, perf_counter() - begun)
    console.print(f"[dim]{name} took {report.seconds[name]:.0f} s[/dim]", highlight=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--scale", choices=list(SIZES), default="full", help="size of the run")
    parser.add_argument(
        "--only",
        action="append",
        choices=[*CASES, GUARANTEES],
        help="run only this; repeatable",
    )
    parser.add_argument(
        "--peer",
        action="append",
        choices=sorted({peer.name for peer in PEERS}),
        help="only this queue; repeatable",
    )
    parser.add_argument(
        "--publish", action="store_true", help="put the results into docs/benchmarks.md"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
