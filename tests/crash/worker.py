"""A worker process that may kill itself at a named point of a turn."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from holdfast import process
from holdfast.agents.base import Answer
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.channels.base import Channel, Put
from holdfast.queue.event import INBOX, Event
from holdfast.queue.outcome import Done, Lost, Outcome, Retry, Settled
from holdfast.queue.turn import LeasedTurn
from holdfast.settings import Settings
from holdfast.store import Store, open_store
from holdfast.store.watch import BETWEEN_LOOKS, Watch
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
class WorkerOptions:
    """Options of a worker process."""

    url: str
    folder: str
    lease: float = 10
    poll: float = 60
    workers: int = 5
    slowness: float = 0.02
    ignores_wakeups: bool = False
    between_looks: float = BETWEEN_LOOKS.total_seconds()
    point: str | None = None
    nth: int = 1
    team: bool = False
    apart: str | None = None
    """A fault: put responses "before" or "after" the settle instead of with it."""
    delivers: bool = False
    """Deliver responses to the channel "sink", which takes them all."""
    times_claims: bool = False
    """Append the milliseconds of each claim that brought a turn to the file "claims"."""

    def dump(self) -> str:
        return json.dumps(asdict(self))


class CrashPoint:
    """Kills the process when its point is reached for the nth time, and notes that."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._left = options.nth
        self.held = 0

    def is_reached(self, point: str, *, leased: bool = True) -> bool:
        """Return whether it is time to crash, and note it; the caller kills the process."""
        self._left -= point == self._options.point
        if point != self._options.point or self._left != 0:
            return False
        note(self._options.folder, point, leased)
        return True

    def reach(self, point: str, *, leased: bool = True) -> None:
        if self.is_reached(point, leased=leased):
            kill_me()


def note(folder: str, point: str, leased: bool) -> None:
    """Append a line about a kill in one write, so that it is whole or missing."""
    with open(Path(folder, "kills"), "ab", buffering=0) as kills:
        kills.write(json.dumps({"point": point, "leased": leased}).encode() + b"\n")


def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class SplitSettle:
    """A store with a fault: it puts emits in a second transaction, with a crash point between."""

    def __init__(self, store: Store, crash: CrashPoint, order: str) -> None:
        self._store = store
        self._crash = crash
        self._order = order

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def settle(
        self, ends: Sequence[tuple[LeasedTurn, Outcome]], **options: Any
    ) -> list[Settled | Lost]:
        emits = [emit for _, end in ends if isinstance(end, Done) for emit in end.emits]
        bare = [
            (turn, replace(end, emits=()) if isinstance(end, Done) else end) for turn, end in ends
        ]
        if self._order == "before":
            await self._store.put(emits)
            self._crash.reach(BETWEEN)
        results = await self._store.settle(bare, **options)
        if self._order == "after":
            self._crash.reach(BETWEEN)
            await self._store.put(emits)
        return results


class CrashingStore:
    """A store with crash points before, during and after its calls."""

    def __init__(
        self, store: Store, journal: Journal, crash: CrashPoint, options: WorkerOptions
    ) -> None:
        self._store = (
            store
            if options.apart is None
            else cast(Store, SplitSettle(store, crash, options.apart))
        )
        self._journal = journal
        self._crash = crash
        self._ignores_wakeups = options.ignores_wakeups
        self._claims = Path(options.folder, "claims") if options.times_claims else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def wakeups(self, queue: str | None = None) -> AsyncIterator[str]:
        if self._ignores_wakeups:
            await asyncio.Event().wait()
        async for queue in self._store.wakeups():
            yield queue

    async def claim(self, *args: Any, **options: Any) -> list[LeasedTurn]:
        began_at = time.perf_counter()
        turns = await self._store.claim(*args, **options)
        self._crash.held += len(turns)
        if turns and self._claims is not None:
            with self._claims.open("a") as file:
                file.write(f"{(time.perf_counter() - began_at) * 1000:.2f}\n")
        if turns:
            self._crash.reach("after the claim")
        return turns

    async def settle(
        self, ends: Sequence[tuple[LeasedTurn, Outcome]], **options: Any
    ) -> list[Settled | Lost]:
        crash = self._crash
        crash.reach("before the commit")
        if crash.is_reached("during the commit", leased=crash.held > len(ends)):
            threading.Timer(random.random() * 0.004, kill_me).start()
        results = await self._store.settle(ends, **options)
        crash.held -= len(ends)
        crash.reach("after the commit", leased=crash.held > 0)
        for (turn, _), result in zip(ends, results, strict=True):
            # Only agents note their starts; channels do not.
            if turn.primary.queue == INBOX:
                self._journal.settle(turn, result)
        return results


class Sink(Channel):
    """A channel that takes every response."""

    name = "sink"

    async def run(self, put: Put) -> None:
        return

    async def send(self, response: Event) -> None:
        return


def clock_of(folder: str) -> Callable[[], datetime]:
    """Return a clock that is ahead of the machine's by the seconds in the file `clock`."""
    file = Path(folder, "clock")

    def now() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(file.read_text()))

    return now


def answering(options: WorkerOptions, journal: Journal, crash: CrashPoint) -> Callable[[Turn], Any]:
    running: set[int] = set()

    async def answer(turn: Turn) -> Answer:
        running.add(turn.leased.fence)
        try:
            return await handle(turn)
        finally:
            running.discard(turn.leased.fence)

    async def handle(turn: Turn) -> Answer:
        journal.start(turn.leased)
        await asyncio.sleep(random.random() * options.slowness)
        crash.reach("while handling")
        if len(running) >= SEVERAL:
            crash.reach("holding several")
        if turn.event.get("kills"):
            note(options.folder, "poison", True)
            kill_me()
        while must_wait(turn):  # noqa: ASYNC110 - another process creates the file
            await asyncio.sleep(0.01)
        if len(turn.primary.claimed) == 1 and turn.primary.id % 13 == 0:
            journal.end(turn.leased)
            return Retry("again", timedelta(milliseconds=turn.primary.id % 50))
        journal.end(turn.leased, emits=1)
        return script(turn) if options.team else f"answer to {turn.primary.id}"

    return answer


def must_wait(turn: Turn) -> bool:
    """Return whether a run has to wait for a file: that of its number, if the message names one."""
    gates, number = turn.event.get("gates", []), len(turn.primary.claimed)
    return number <= len(gates) and not Path(gates[number - 1]).exists()


def run(options: WorkerOptions) -> None:
    logging.basicConfig(
        filename=Path(options.folder, "log"), format="%(process)d %(name)s %(message)s"
    )
    journal, crash = Journal(Path(options.folder, "journal")), CrashPoint(options)
    watch = Watch(timedelta(seconds=options.between_looks))
    clock = clock_of(options.folder) if Path(options.folder, "clock").exists() else None

    @asynccontextmanager
    async def open_crashing(url: str, **given: Any) -> AsyncIterator[Store]:
        async with open_store(url, **given, clock=clock, watch=watch) as store:
            yield cast(Store, CrashingStore(store, journal, crash, options))

    process.open_store = open_crashing  # type: ignore[attr-defined]
    settings = Settings(
        database=options.url,
        lease=timedelta(seconds=options.lease),
        poll=timedelta(seconds=options.poll),
        poll_jitter=timedelta(0),
        grace=timedelta(seconds=5),
    )
    make = team_app if options.team else AgentHarness
    app = make(answering(options, journal, crash), settings=settings)
    if options.delivers:
        app.add_channel(Sink())
    ready = Path(options.folder, f"ready-{os.getpid()}")
    asyncio.run(app.run(num_workers=options.workers, on_ready=ready.touch))


if __name__ == "__main__":
    run(WorkerOptions(**json.loads(sys.argv[1])))
