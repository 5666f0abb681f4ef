"""Measure steps: one turn, eight turns at once, and a turn with very many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from statistics import median
from time import perf_counter

from bench.database import with_raw
from bench.engine import Engine
from bench.mention import PAYLOAD
from bench.row import Goal, Row, Run, blocking, compare_runs, interleave
from bench.scale import Scale
from bench.workload import LEASE, TARGET, Feed, Shape
from holdfast.agents.journal import TurnJournal
from holdfast.agents.turn import Turn
from holdfast.message import Payload
from holdfast.queue.event import INBOX
from holdfast.queue.turn import LeasedTurn
from holdfast.store import Store

TURNS = 8
OVER_COMMIT = Goal(0.5, 0.8)
EIGHT_OVER_ONE = Goal(3.0)
GAP = Goal(1.5, at_most=True)
EARLY, LATE, AROUND = 10, 1_000, 10


async def step_one(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    async with with_raw(engine) as (store, raw):
        ours = stepping(store, Feed(Shape.MANY), scale.puts)
        theirs, found = await interleave(scale.rounds, blocking(raw.put_one, scale.puts), ours)
    yield compare_runs(
        engine.name, "steps of one turn", found, "one-row inserts", theirs, OVER_COMMIT
    )


async def step_eight(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    async with with_raw(engine) as (store, _):
        feed = Feed(Shape.MANY)
        one, eight = await interleave(
            scale.rounds,
            stepping(store, feed, scale.puts),
            stepping(store, feed, scale.puts, turns=TURNS),
        )
    yield compare_runs(
        engine.name, "steps of 8 turns", eight, "our own, one turn", one, EIGHT_OVER_ONE
    )


async def step_gap(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    """Compare the rate of steps around the 1,000th step of a turn with that around the 10th."""
    early: list[float] = []
    late: list[float] = []
    async with with_raw(engine) as (store, _):
        feed = Feed(Shape.MANY)
        for _ in range(scale.rounds):
            [turn] = await _claim(store, feed, 1)
            gaps = await _step(store, turn, LATE + AROUND)
            early.append(1000 * median(gaps[EARLY - AROUND : EARLY + AROUND]))
            late.append(1000 * median(gaps[LATE - AROUND : LATE + AROUND]))
    yield Row(
        store=engine.name,
        what=f"gap between steps at the {LATE:,}th",
        measured=median(late),
        against=f"at the {EARLY}th",
        beside=median(early),
        goal=GAP,
        unit="ms",
        samples=[late, early],
    )


def stepping(store: Store, feed: Feed, count: int, *, turns: int = 1) -> Run:
    """Run `count` steps in each of some turns at once."""

    async def run() -> float:
        held = await _claim(store, feed, turns)
        start = perf_counter()
        async with asyncio.TaskGroup() as group:
            for turn in held:
                group.create_task(_step(store, turn, count))
        return turns * count / (perf_counter() - start)

    return run


async def _claim(store: Store, feed: Feed, turns: int) -> list[LeasedTurn]:
    await store.put(feed.take(turns))
    held = await store.claim(INBOX, [TARGET], limit=turns, lease=LEASE, holder="bench")
    assert len(held) == turns, "a turn is missing: nobody else works here"
    return held


async def _step(store: Store, leased: LeasedTurn, count: int) -> list[float]:
    """Run steps one after the other. Returns the seconds that each took."""
    turn = Turn(leased, TARGET, journal=TurnJournal(store, leased, TARGET))
    gaps: list[float] = []
    for _ in range(count):
        start = perf_counter()
        await turn.step("fetch", _fetch)
        gaps.append(perf_counter() - start)
    return gaps


async def _fetch() -> Payload:
    return PAYLOAD
