"""Measure what wake-ups cost the callers of put, and how soon they wake another process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import count as numbers
from statistics import median
from time import perf_counter

from bench.engine import Engine
from bench.process import ROOT
from bench.row import Goal, Row, Run, compare_runs, interleave
from bench.scale import Scale
from bench.wake_putters import FEED_SIZE, open_stores, waking
from bench.workload import Feed, Shape
from holdfast.chat import ChatStore
from holdfast.queue.event import INBOX
from holdfast.store import open_store

PROCESSES = 8
CONNECTIONS = 64
WAYS = ("after", "inside", "not")
ENOUGH = Goal(0.6, at_most=False)
AS_SOON = Goal(1.2, at_most=True)
NOT_SLOWER = Goal(0.95)
NUMBERS = numbers(1)
"""Each process that puts has a number, so that no two put the same messages."""
PINGS = 100
PING_SECONDS = 0.03


async def wake(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    if engine.name != "postgres":
        return
    with engine.fresh() as url:
        async with waiting(url) as waiter:
            for what, stores, callers in (
                (f"{CONNECTIONS} stores in {PROCESSES} processes", CONNECTIONS // PROCESSES, 1),
                (f"{PROCESSES} processes, 8 callers each", 1, CONNECTIONS // PROCESSES),
            ):
                after, inside, without = await _rates(url, scale, PROCESSES, stores, callers)
                name = f"put by {what}, one waits"
                yield compare_runs(engine.name, name, after, "without wake-ups", without, ENOUGH)
                yield compare_runs(engine.name, name, after, "notify inside", inside, None)
            after, inside, _ = await _rates(url, scale, 1, 1, 1)
            name = "put by one caller, one waits"
            yield compare_runs(engine.name, name, after, "notify inside", inside, None)
            yield await _pick_up(engine, url, waiter, scale)
        after, inside, _ = await _rates(url, scale, 1, 1, 1)
        name = "put by one caller, nobody waits"
        yield compare_runs(engine.name, name, after, "notify inside", inside, NOT_SLOWER)


@asynccontextmanager
async def waiting(url: str) -> AsyncIterator[ChatStore]:
    """Yield a store that waits for the inbox as an idle worker does, and claims nothing."""
    async with AsyncExitStack() as stack:
        [store] = await open_stores(stack, url, "waiter", 1)
        await store.expect(INBOX)
        yield store


async def _rates(
    url: str, scale: Scale, processes: int, stores: int, callers: int
) -> list[list[float]]:
    """Return the puts per second of each of WAYS, in interleaved rounds."""
    count = scale.puts // (stores * callers) * stores * callers
    with _putters(url, processes, stores, callers) as putters:
        runs = [_putting(putters, how, count) for how in WAYS]
        # The first round of each process fills caches.
        await interleave(1, *runs)
        return await interleave(scale.rounds, *runs)


def _putting(putters: list[subprocess.Popen[str]], how: str, count: int) -> Run:
    async def run() -> float:
        begun = perf_counter()
        for putter in putters:
            _request(putter, f"{how} {count // len(putters)}")
        await asyncio.gather(*[asyncio.to_thread(_answer, putter) for putter in putters])
        return count / (perf_counter() - begun)

    return run


@contextmanager
def _putters(
    url: str, processes: int, stores: int, callers: int
) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "bench.wake_putters", url]
    putters = [
        subprocess.Popen(
            [*command, str(next(NUMBERS)), str(stores), str(callers)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    try:
        for putter in putters:
            assert _answer(putter) == "ready"
        yield putters
    finally:
        for putter in putters:
            # The end of its input ends it.
            putter.communicate()


def _request(putter: subprocess.Popen[str], line: str) -> None:
    assert putter.stdin is not None
    putter.stdin.write(line + "\n")
    putter.stdin.flush()


def _answer(putter: subprocess.Popen[str]) -> str:
    assert putter.stdout is not None
    return putter.stdout.readline().strip()


async def _pick_up(engine: Engine, url: str, waiter: ChatStore, scale: Scale) -> Row:
    """Compare the medians of the time from the put until the other process is notified."""
    feed = Feed(Shape.MANY, next(NUMBERS) * FEED_SIZE)
    async with open_store(url) as store:
        runs = [_hearing(store, waiter, feed, how) for how in WAYS[:2]]
        await interleave(1, *runs)
        after, inside = await interleave(scale.rounds, *runs)
    return Row(
        store=engine.name,
        what=f"put until another process hears of it, p50 of {PINGS}",
        measured=median(after),
        against="notify inside",
        beside=median(inside),
        goal=AS_SOON,
        unit="ms",
        samples=[after, inside],
    )


def _hearing(store: ChatStore, waiter: ChatStore, feed: Feed, how: str) -> Run:
    async def run() -> float:
        wakeups, took = waiter.wakeups(INBOX), []
        hearing = asyncio.ensure_future(anext(wakeups))
        with waking(how):
            for new in feed.take(PINGS):
                begun = perf_counter()
                await store.put([new])
                await hearing
                took.append((perf_counter() - begun) * 1000)
                hearing = asyncio.ensure_future(anext(wakeups))
                # Wait for longer than wake-ups are held back to be sent together.
                await asyncio.sleep(PING_SECONDS)
        hearing.cancel()
        return median(took)

    return run
