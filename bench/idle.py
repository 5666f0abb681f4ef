"""Measure an idle process: transactions, memory, and the time it takes to start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from statistics import median
from time import perf_counter

from bench.engine import Engine
from bench.process import MEGABYTE, Running, run, run_process
from bench.row import Goal, Row, compare_to_goal
from bench.scale import Scale

TRANSACTIONS = Goal(3.0, at_most=True)
RESIDENT = Goal(90.0, at_most=True)
FIRST_ANSWER = 3.0
SETTLING = 3.0


async def idle(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    with engine.fresh() as url, run_process("work", url) as worker:
        # Do not count the start.
        await asyncio.sleep(SETTLING)
        busy, count = await _measure_usage(engine, url, worker, scale.idle)
        size = worker.resident()
    if count is not None:
        yield compare_to_goal(
            TRANSACTIONS, engine.name, "an idle worker, transactions", count, "1/s"
        )
    yield Row(
        store=engine.name,
        what="an idle worker, processor time",
        measured=busy * 1000,
        against="one core",
        beside=1000,
        unit="ms/s",
    )
    yield compare_to_goal(
        RESIDENT, engine.name, "an idle worker with the echo agent", size / MEGABYTE, "MB"
    )


async def _measure_usage(
    engine: Engine, url: str, worker: Running, seconds: int
) -> tuple[float, float | None]:
    """Return processor time and transactions per second, the latter if the engine counts them."""
    begun, busy, count = perf_counter(), worker.busy(), engine.transactions(url)
    await asyncio.sleep(seconds)
    took = perf_counter() - begun
    more = engine.transactions(url)
    return (worker.busy() - busy) / took, None if more is None or count is None else (
        more - count
    ) / took


async def start_up(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    with engine.fresh() as url:
        with run_process("up", url, "--port", "0"):
            pass
        workers = [_ready_after(url) for _ in range(scale.rounds)]
        answers = [_answered_after(url) for _ in range(scale.rounds)]
    yield Row(
        store=engine.name,
        what="start of a worker until it is ready",
        measured=median(workers),
        against="maximum for a first answer",
        beside=FIRST_ANSWER,
        unit="s",
        samples=[workers],
    )
    what = "`holdfast up` until `send --wait` is answered"
    yield compare_to_goal(Goal(FIRST_ANSWER, at_most=True), engine.name, what, median(answers), "s")


def _ready_after(url: str) -> float:
    with run_process("work", url) as worker:
        return worker.ready_after


def _answered_after(url: str) -> float:
    """Return the seconds until `send --wait` is answered, with the start of that command."""
    begun = perf_counter()
    with run_process("up", url, "--port", "0"):
        answer = run("send", url, "hello", "--wait")
        took = perf_counter() - begun
    assert "hello" in answer, answer
    return took
