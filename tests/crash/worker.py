"""A harness that may kill itself at a named point of a turn's way; the nursery runs one per process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from holdfast import process
from holdfast.agents.base import Answer
from holdfast.app import AgentHarness
from holdfast.queue.event import Turn
from holdfast.queue.outcome import Done, Lost, Outcome, Retry, Settled
from holdfast.settings import Settings
from holdfast.store import Store, open_store, watch
from tests.crash.team import script, team_app
from tests.journal import Journal

POINTS = (
    "after the claim",
    "while handling",
    "holding several",
    "before the commit",
    "during the commit",
    "after the commit",
)
BETWEEN = "between response and end"
SEVERAL = 3


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a process is told at its start."""

    url: str
    folder: str
    lease: float = 10
    poll: float = 60
    workers: int = 5
    slowness: float = 0.02
    deaf: bool = False
    between_looks: float = watch.BETWEEN_LOOKS.total_seconds()
    point: str | None = None
    nth: int = 1
    team: bool = False
    apart: str | None = None
    """A fault: responses are put "before" or "after" the settle instead of with it."""

    def dump(self) -> str:
        return json.dumps(asdict(self))


class Mine:
    """Goes off when its point is passed for the nth time, and leaves a note of it."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._left = orders.nth
        self.held = 0

    def passing(self, point: str, *, leased: bool = True) -> bool:
        """Whether this is the time; the caller has it go off."""
        self._left -= point == self._orders.point
        if point != self._orders.point or self._left != 0:
            return False
        note(self._orders.folder, point, leased)
        return True

    def step(self, point: str, *, leased: bool = True) -> None:
        if self.passing(point, leased=leased):
            kill_me()


def note(folder: str, point: str, leased: bool) -> None:
    """One write, so that a line is there whole or not at all."""
    with open(Path(folder, "kills"), "ab", buffering=0) as kills:
        kills.write(json.dumps({"point": point, "leased": leased}).encode() + b"\n")


def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Apart:
    """A store with a fault: what a turn emits is put in a transaction of its own, and a mine lies between the two."""

    def __init__(self, store: Store, mine: Mine, order: str) -> None:
        self._store = store
        self._mine = mine
        self._order = order

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def settle(
        self, ends: Sequence[tuple[Turn, Outcome]], **options: Any
    ) -> list[Settled | Lost]:
        emits = [emit for _, end in ends if isinstance(end, Done) for emit in end.emits]
        bare = [
            (turn, replace(end, emits=()) if isinstance(end, Done) else end) for turn, end in ends
        ]
        if self._order == "before":
            await self._store.put(emits)
            self._mine.step(BETWEEN)
        results = await self._store.settle(bare, **options)
        if self._order == "after":
            self._mine.step(BETWEEN)
            await self._store.put(emits)
        return results


class Mined:
    """A store with mines on the way of a turn."""

    def __init__(self, store: Store, journal: Journal, mine: Mine, orders: Orders) -> None:
        self._store = (
            store if orders.apart is None else cast(Store, Apart(store, mine, orders.apart))
        )
        self._journal = journal
        self._mine = mine
        self._deaf = orders.deaf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def wakeups(self) -> AsyncIterator[str]:
        if self._deaf:
            await asyncio.Event().wait()
        async for queue in self._store.wakeups():
            yield queue

    async def claim(self, *args: Any, **options: Any) -> list[Turn]:
        turns = await self._store.claim(*args, **options)
        self._mine.held += len(turns)
        if turns:
            self._mine.step("after the claim")
        return turns

    async def settle(
        self, ends: Sequence[tuple[Turn, Outcome]], **options: Any
    ) -> list[Settled | Lost]:
        mine = self._mine
        mine.step("before the commit")
        if mine.passing("during the commit", leased=mine.held > len(ends)):
            threading.Timer(random.random() * 0.004, kill_me).start()
        results = await self._store.settle(ends, **options)
        mine.held -= len(ends)
        mine.step("after the commit", leased=mine.held > 0)
        for (turn, _), result in zip(ends, results, strict=True):
            self._journal.settle(turn, result)
        return results


def clock_of(folder: str) -> Callable[[], datetime]:
    """The machine's clock, as far as the file `clock` says it was put forward or back, in seconds."""
    file = Path(folder, "clock")

    def now() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(file.read_text()))

    return now


def answering(orders: Orders, journal: Journal, mine: Mine) -> Callable[[Turn], Any]:
    running: set[int] = set()

    async def answer(turn: Turn) -> Answer:
        running.add(turn.fence)
        try:
            return await handle(turn)
        finally:
            running.discard(turn.fence)

    async def handle(turn: Turn) -> Answer:
        journal.start(turn)
        await asyncio.sleep(random.random() * orders.slowness)
        mine.step("while handling")
        if len(running) >= SEVERAL:
            mine.step("holding several")
        if turn.event.get("kills"):
            note(orders.folder, "poison", True)
            kill_me()
        while is_held_up(turn):  # noqa: ASYNC110 - the signal is a file, made by another process
            await asyncio.sleep(0.01)
        if len(turn.primary.claimed) == 1 and turn.primary.id % 13 == 0:
            journal.end(turn)
            return Retry("again", timedelta(milliseconds=turn.primary.id % 50))
        journal.end(turn, emits=1)
        return script(turn) if orders.team else f"answer to {turn.primary.id}"

    return answer


def is_held_up(turn: Turn) -> bool:
    """Each run waits until the gate of its number is there, if it has one."""
    gates, number = turn.event.get("gates", []), len(turn.primary.claimed)
    return number <= len(gates) and not Path(gates[number - 1]).exists()


def run(orders: Orders) -> None:
    logging.basicConfig(
        filename=Path(orders.folder, "log"), format="%(process)d %(name)s %(message)s"
    )
    journal, mine = Journal(Path(orders.folder, "journal")), Mine(orders)
    clock = clock_of(orders.folder) if Path(orders.folder, "clock").exists() else None

    @asynccontextmanager
    async def open_mined(url: str, **options: Any) -> AsyncIterator[Store]:
        async with open_store(url, **options, clock=clock) as store:
            yield cast(Store, Mined(store, journal, mine, orders))

    process.open_store = open_mined  # type: ignore[attr-defined]
    watch.BETWEEN_LOOKS = timedelta(seconds=orders.between_looks)
    settings = Settings(
        database=orders.url,
        lease=timedelta(seconds=orders.lease),
        poll=timedelta(seconds=orders.poll),
        poll_jitter=timedelta(0),
        grace=timedelta(seconds=5),
    )
    make = team_app if orders.team else AgentHarness
    app = make(answering(orders, journal, mine), settings=settings)
    ready = Path(orders.folder, f"ready-{os.getpid()}")
    asyncio.run(app.run(num_workers=orders.workers, on_ready=ready.touch))
