"""Measure whether memory stays flat: a process drains a long backlog and prints its size."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter

from bench.engine import Engine
from bench.row import Goal, Row
from bench.scale import Scale
from bench.workload import BATCH, Shape, drain
from holdfast.store import open_store

FLAT = Goal(1.1, at_most=True)


async def memory(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    with engine.fresh() as url:
        engine.load(url, Shape.MANY, scale.drained)
        early, late = [json.loads(line) for line in _drained(url, scale.drained)]
    yield Row(
        store=engine.name,
        what=f"memory after draining {scale.drained:,}",
        measured=late["resident"] / 2**20,
        against="at 10 %",
        beside=early["resident"] / 2**20,
        # A short drain is still warming up at 10 %.
        goal=FLAT if scale.binding else None,
        unit="MiB",
    )
    yield Row(
        store=engine.name,
        what=f"draining {scale.drained:,} to the end",
        measured=late["rate"],
        against="the first 10 %",
        beside=early["rate"],
    )


def _drained(url: str, count: int) -> list[str]:
    command = [sys.executable, "-m", "bench.memory", url, str(count)]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()


async def _drain(url: str, count: int) -> None:
    """Print size and rate so far, at 10 % and at the end."""
    drained, start = 0, perf_counter()
    async with open_store(url) as store:
        for goal in (count // 10, count):
            while drained < goal:
                drained += await drain(store, limit=BATCH)
            print(
                json.dumps({"resident": resident(), "rate": drained / (perf_counter() - start)}),
                flush=True,
            )


def resident() -> int:
    """Return the resident bytes of this process, or its maximum if the system gives only that."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


if __name__ == "__main__":
    asyncio.run(_drain(sys.argv[1], int(sys.argv[2])))
