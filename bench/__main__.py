"""Measure, print one table, and save JSON and a chart (`make bench`)."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from time import perf_counter

from rich.console import Console

from bench import (
    backlog,
    cost,
    drain,
    fanout,
    first_token,
    fleet,
    http,
    idle,
    latency,
    memory,
    mentions,
    put,
    quality,
    remember,
    report,
    slack,
    step,
    wake,
    web,
    worker,
)
from bench.engine import Engine
from bench.postgres import PostgresEngine
from bench.row import Row
from bench.scale import SCALES, Scale
from bench.sqlite import SqliteEngine
from holdfast.testing.crowds import CROWDS
from holdfast.testing.databases import Databases

WIDTH = 150
FOLDER = Path(__file__).parents[1] / "build" / "bench"

Measurement = Callable[[Engine, Scale], AsyncIterator[Row]]

# In the order of the table. A new measurement is a function that yields rows, and one line here.
MEASUREMENTS: dict[str, Measurement] = {
    "put-one": put.put_one,
    "put-eight": put.put_eight,
    "put-bulk": put.put_bulk,
    "step-one": step.step_one,
    "step-eight": step.step_eight,
    "step-gap": step.step_gap,
    "http-put": http.http_put,
    "wake": wake.wake,
    "drain-one": drain.drain_one,
    "drain-batch": drain.drain_batch,
    "backlog-lanes": backlog.with_many_lanes,
    "backlog-one-lane": backlog.with_one_lane,
    "backlog-no-lanes": backlog.without_lanes,
    "memory": memory.memory,
    "worker-drain": worker.worker_drain,
    "cost": cost.cost,
    "pick-up": latency.pick_up,
    "re-claim": latency.re_claim,
    "fan-out": fanout.fan_out,
    "first-token": first_token.first_token,
    "first-token-slack": slack.first_token,
    **{channel: mentions.mention_to_reply(channel) for channel in CROWDS},
    "slack-burst": mentions.slack_burst,
    "idle": idle.idle,
    "start-up": idle.start_up,
    "memory-quality": quality.memory_quality,
    "memory-index": remember.memory_index,
    "web": web.web,
    "fleet": fleet.fleet,
    "worker-memory": worker.worker_memory,
}
# These take minutes per store and run only if they are named.
LONG = ("worker-memory", "fleet")
ENGINES: dict[str, Callable[[Databases], Engine]] = {
    "postgres": PostgresEngine,
    "sqlite": SqliteEngine,
}


def main() -> int:
    wanted = _arguments()
    console = Console(width=max(Console().width, WIDTH))
    scale = SCALES[wanted.scale]
    with closing(Databases(durable=True)) as databases:
        engines = [
            make(databases) for name, make in ENGINES.items() if wanted.store in (name, "all")
        ]
        rows = asyncio.run(
            _measured(
                engines,
                scale,
                wanted.only or [name for name in MEASUREMENTS if name not in LONG],
                console,
            )
        )
        versions = [engine.version() for engine in engines]
    console.print(report.table(rows))
    for path in report.save(FOLDER, rows, wanted.scale, versions):
        console.print(f"saved {path}")
    missed = [row for row in rows if row.passed is False]
    return 1 if missed and scale.binding else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--store", choices=[*ENGINES, "all"], default="all")
    parser.add_argument(
        "--scale",
        choices=list(SCALES),
        default="full",
        help="size of the run; only a full one fails on a missed ratio",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(MEASUREMENTS),
        help="run only this; repeatable",
    )
    return parser.parse_args()


async def _measured(
    engines: list[Engine], scale: Scale, names: list[str], console: Console
) -> list[Row]:
    rows: list[Row] = []
    for engine in engines:
        for name in names:
            start = perf_counter()
            with console.status(f"{engine.name}: {name}"):
                rows += [row async for row in MEASUREMENTS[name](engine, scale)]
            console.print(
                f"[dim]{engine.name}: {name} took {perf_counter() - start:.0f} s[/dim]",
                highlight=False,
            )
    return rows


if __name__ == "__main__":
    sys.exit(main())
