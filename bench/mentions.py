"""Measure a mention to its reply on each platform, with the echo agent in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from tempfile import NamedTemporaryFile

from bench.engine import Engine
from bench.latency import percentile
from bench.process import run_process
from bench.row import Goal, Row, compare_to_goal
from bench.scale import Scale
from holdfast.testing.crowds import Crowd, answered_in_order, open_crowd
from holdfast.testing.servers import Unavailable

QUICK = Goal(150.0, at_most=True), Goal(1000.0, at_most=True)
SLOW = Goal(500.0, at_most=True), Goal(5000.0, at_most=True)
"""Goals (p50, p99) where Synapse takes most of the time: it answers a send in 20 to 50 ms, and
wakes a sync after it."""
MAIL = Goal(1500.0, at_most=True), Goal(5000.0, at_most=True)
"""Dovecot waits half a second before it reports a message."""
GOALS = {"matrix": SLOW, "email": MAIL}
WARM, WARM_UP = -1, "warm"
THREADS, EACH = 100, 10
LIMIT = 50
"""Messages in a second that the local Slack takes."""
WAIT_SECONDS = 300.0

Measurement = Callable[[Engine, Scale], AsyncIterator[Row]]


def mention_to_reply(channel: str) -> Measurement:
    """Return the measurement of a channel."""
    return partial(_mention_to_reply, channel)


async def _mention_to_reply(channel: str, engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    try:
        async with working_crowd(engine, channel) as crowd:
            found = await _milliseconds(crowd, scale.watched * crowd.per_second)
    except Unavailable as reason:
        print(f"{channel} is left out: {reason}", file=sys.stderr)
        return
    for share, goal in zip((0.5, 0.99), GOALS.get(channel, QUICK), strict=True):
        what = f"mention to reply in {crowd.title}, p{share * 100:g} of {len(found):,}"
        yield compare_to_goal(goal, engine.name, what, percentile(found, share), "ms")


async def _milliseconds(crowd: Crowd, count: int) -> list[float]:
    """Return the times of mentions at a steady pace, by the clock of the platform."""
    await crowd.say(WARM, WARM_UP)
    await crowd.wait(1)
    begun = time.monotonic()
    for nth in range(count):
        await asyncio.sleep(begun + nth / crowd.per_second - time.monotonic())
        await crowd.say(nth, "hello")
    found = await crowd.wait(count + 1, WAIT_SECONDS)
    pairs = [(crowd.sent_at[nth][0], found[nth]) for nth in range(count)]
    assert all(len(answers) == 1 for _, answers in pairs), pairs
    return [(answers[0].at - sent_at) * 1000 for sent_at, answers in pairs]


async def slack_burst(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    """Measure many mentions at once: all answered once, in order, and none before Retry-After."""
    async with working_crowd(engine, "slack") as crowd:
        crowd.limit()
        begun = time.monotonic()
        await crowd.ask(THREADS, EACH)
        await crowd.wait(THREADS * EACH, WAIT_SECONDS)
        took = time.monotonic() - begun
        await asyncio.sleep(1)
        assert answered_in_order(await crowd.answers(), THREADS, EACH)
    assert not crowd.early_requests, crowd.early_requests
    yield Row(
        store=engine.name,
        what=f"burst of {THREADS * EACH:,} mentions in {THREADS} threads, answered",
        measured=THREADS * EACH / took,
        against="Slack's limit",
        beside=LIMIT,
    )


@asynccontextmanager
async def working_crowd(engine: Engine, channel: str) -> AsyncIterator[Crowd]:
    """Yield the crowd of a platform to which a process is connected."""
    async with open_crowd(channel) as crowd:
        with (
            engine.fresh() as url,
            environment(crowd.variables),
            NamedTemporaryFile("w", suffix=".toml") as config,
        ):
            # A local platform has no strangers, so nobody has to be paired.
            print('pairing = "open"', file=config, flush=True)
            options = ("--config", config.name, *(("--port", "0") if crowd.needs_http else ()))
            working = run_process("up" if crowd.needs_http else "work", url, *options)
            process = await asyncio.to_thread(working.__enter__)
            try:
                if crowd.needs_http:
                    crowd.connect(process.address)
                await crowd.wait_ready()
                yield crowd
            finally:
                await asyncio.to_thread(working.__exit__, None, None, None)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables during the block."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
