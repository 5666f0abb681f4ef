"""Measure pick-up by another process: idle, while it drains, and after a kill -9."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.apps import PING
from bench.engine import Engine
from bench.mention import PAYLOAD
from bench.process import run_process
from bench.row import Goal, Row, compare_to_goal
from bench.scale import Scale
from bench.workload import BATCH, Shape
from holdfast.queue.event import NewEvent
from holdfast.store import Store, open_store

PER_SECOND = 20
TIMEOUT_SECONDS = 30.0
RECLAIM = Goal(5.0, at_most=True)
# The process that takes pings starts first.
BUSY = {"while another drains": ("pings", "noop"), "while it drains for another agent": ("pinged",)}
STUCK = ("--app", "bench.apps:stuck")
PERCENTILES = (0.5, 0.99, 0.999)


async def pick_up(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    calm = await _latencies(engine, scale, 0, "pinged")
    goals = (engine.goals.pick_up_half, engine.goals.pick_up_99, None)
    for share, goal in zip(PERCENTILES, goals, strict=True):
        what, measured = (
            f"pick-up at {PER_SECOND}/s, {_percentile_name(share, calm)}",
            percentile(calm, share),
        )
        if goal is not None:
            yield compare_to_goal(goal, engine.name, what, measured, "ms")
        else:
            yield _latency_row(engine, what, measured, "the median", percentile(calm, 0.5))
    for how, apps in BUSY.items():
        busy = await _latencies(engine, scale, scale.busy, *apps)
        for share in PERCENTILES:
            what, measured = (
                f"pick-up {how}, {_percentile_name(share, busy)}",
                percentile(busy, share),
            )
            yield _latency_row(
                engine, what, measured, "while nothing else is to do", percentile(calm, share)
            )


def _latency_row(engine: Engine, what: str, measured: float, against: str, beside: float) -> Row:
    return Row(
        store=engine.name, what=what, measured=measured, against=against, beside=beside, unit="ms"
    )


def percentile(found: Sequence[float], share: float) -> float:
    """Return the percentile of a list: the least value that this share does not exceed."""
    return sorted(found)[max(math.ceil(share * len(found)), 1) - 1]


def _percentile_name(share: float, found: Sequence[float]) -> str:
    return f"p{share * 100:g} of {len(found):,}"


async def _latencies(engine: Engine, scale: Scale, backlog: int, *apps: str) -> list[float]:
    """Return the milliseconds from the commit's request to the handler's start, of each ping.

    With a backlog, it stops pinging once the backlog is drained."""
    asked_at: dict[int, float] = {}
    with engine.fresh() as url, TemporaryDirectory(prefix="holdfast-bench-") as folder:
        journal = Path(folder, "journal")
        if backlog:
            engine.load(url, Shape.MANY, backlog)
        with ExitStack() as workers:
            for app in apps:
                workers.enter_context(
                    run_process("work", url, "--workers", str(BATCH), "--app", f"bench.apps:{app}")
                )
            async with open_store(url) as store:
                await _ping(store, journal, asked_at, scale.watched * PER_SECOND, backlog)
                began = await _starts(journal, len(asked_at))
    return [(started_at - asked_at[id]) * 1000 for id, started_at in began]


async def _ping(
    store: Store, journal: Path, asked_at: dict[int, float], most: int, backlog: int
) -> None:
    begun = time.monotonic()
    for nth in range(most):
        await asyncio.sleep(begun + nth / PER_SECOND - time.monotonic())
        if backlog and await store.live(backlog) is None:
            return
        async with store.transaction() as tx:
            [id] = await store.put([_event(journal)], tx=tx)
            assert id is not None
            # Take the time before the commit: the handler may start before `put` returns.
            asked_at[id] = time.time()


def _event(journal: Path) -> NewEvent:
    return NewEvent(event=PAYLOAD | {"journal": str(journal)}, target=PING)


async def _starts(journal: Path, count: int) -> list[tuple[int, float]]:
    """Return the start time of each handler by event, once there are `count`."""
    give_up_at = time.monotonic() + TIMEOUT_SECONDS
    while len(notes := _read(journal)) < count:
        assert time.monotonic() < give_up_at, f"{len(notes)} of {count} events were picked up"
        await asyncio.sleep(0.02)
    return notes


def _read(journal: Path) -> list[tuple[int, float]]:
    if not journal.exists():
        return []
    return [
        (note["id"], note["started_at"])
        for note in map(json.loads, journal.read_text().splitlines())
    ]


async def re_claim(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    found = [await _measure_reclaim(engine) for _ in range(scale.kills)]
    yield compare_to_goal(
        RECLAIM,
        engine.name,
        f"kill -9 to the handler elsewhere, worst of {len(found)}",
        max(found),
        "s",
    )


async def _measure_reclaim(engine: Engine) -> float:
    """Return the seconds from the kill of a worker until its turn starts in another."""
    with engine.fresh() as url, TemporaryDirectory(prefix="holdfast-bench-") as folder:
        journal = Path(folder, "journal")
        with run_process("work", url, *STUCK) as victim:
            async with open_store(url) as store:
                await store.put([_event(journal)])
            await _starts(journal, 1)
            with run_process("work", url, *STUCK):
                killed_at = time.time()
                victim.kill()
                [_, (_, started_at)] = await _starts(journal, 2)
    return started_at - killed_at
