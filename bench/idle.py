"""What a process costs before it has anything to do: transactions, memory, and the time it takes to start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from statistics import median
from time import perf_counter

from bench.engine import Engine
from bench.process import MEGABYTE, Running, run, started
from bench.row import Goal, Row, held_to
from bench.scale import Scale

TRANSACTIONS = Goal(3.0, at_most=True)
RESIDENT = Goal(90.0, at_most=True)
FIRST_ANSWER = 3.0
SETTLING = 3.0


async def idle(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    with engine.fresh() as url, started("work", url) as worker:
        # The start itself is not idleness.
        await asyncio.sleep(SETTLING)
        busy, count = await _used(engine, url, worker, scale.idle)
        size = worker.resident()
    if count is not None:
        yield held_to(TRANSACTIONS, engine.name, "an idle worker, transactions", count, "1/s")
    yield Row(
        store=engine.name,
        what="an idle worker, processor time",
        measured=busy * 1000,
        against="one core",
        beside=1000,
        unit="ms/s",
    )
    yield held_to(
        RESIDENT, engine.name, "an idle worker with the echo agent", size / MEGABYTE, "MB"
    )


async def _used(
    engine: Engine, url: str, worker: Running, seconds: int
) -> tuple[float, float | None]:
    """Processor time and transactions per second; the latter where the engine counts them."""
    begun, busy, count = perf_counter(), worker.busy(), engine.transactions(url)
    await asyncio.sleep(seconds)
    took = perf_counter() - begun
    more = engine.transactions(url)
    return (worker.busy() - busy) / took, None if more is None or count is None else (
        more - count
    ) / took


async def start_up(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    with engine.fresh() as url:
        with started("up", url, "--port", "0"):
            pass
        workers = [_ready_after(url) for _ in range(scale.rounds)]
        answers = [_answered_after(url) for _ in range(scale.rounds)]
    yield Row(
        store=engine.name,
        what="start of a worker until it is ready",
        measured=median(workers),
        against="what a first answer may take",
        beside=FIRST_ANSWER,
        unit="s",
        samples=[workers],
    )
    what = "`holdfast up` until `send --wait` is answered"
    yield held_to(Goal(FIRST_ANSWER, at_most=True), engine.name, what, median(answers), "s")


def _ready_after(url: str) -> float:
    with started("work", url) as worker:
        return worker.ready_after


def _answered_after(url: str) -> float:
    """With the start of the command that sends, which comes on top."""
    begun = perf_counter()
    with started("up", url, "--port", "0"):
        answer = run("send", url, "hello", "--wait")
        took = perf_counter() - begun
    assert "hello" in answer, answer
    return took
