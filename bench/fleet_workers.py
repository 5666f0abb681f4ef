"""Many workers in one process, each with the sessions that a worker of a fleet holds."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from holdfast.queue.consumer import Consumer
from holdfast.queue.event import INBOX
from holdfast.queue.outcome import Done
from holdfast.queue.policy import Policy, TargetGroup
from holdfast.queue.store import Process, Store, SweepPolicy
from holdfast.queue.sweeper import Sweeper
from holdfast.queue.turn import LeasedTurn
from holdfast.store import open_store

LEASE = timedelta(minutes=10)
GRACE = timedelta(seconds=5)
POLL = timedelta(minutes=1)
AT_ONCE = 20
"""Workers that connect at the same time."""

Note = Callable[..., None]


def noting(path: str) -> Note:
    """Return a function that appends a line to a file, in one write."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(**fields: Any) -> None:
        os.write(file, json.dumps(fields | {"at": time.time()}).encode() + b"\n")

    return note


class TimedStore:
    """A store that notes how long each claim takes."""

    def __init__(self, store: Store, note: Note) -> None:
        self._store = store
        self._note = note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, *arguments: Any, **options: Any) -> list[LeasedTurn]:
        begun = time.perf_counter()
        turns = await self._store.claim(*arguments, **options)
        self._note(claim_ms=(time.perf_counter() - begun) * 1000, turns=len(turns))
        return turns


class Worker:
    """The consumer and the sweeper of one worker with one slot, as a process of a fleet has."""

    def __init__(self, store: Store, name: str, note: Note) -> None:
        self._store = store
        self._name = name
        self._note = note
        group = TargetGroup(targets=("",), lease=LEASE, collect_limit=1, max_attempts=3)
        policy = Policy(queue=INBOX, target_groups=(group,), at_once=1, poll=POLL)
        timed = cast(Store, TimedStore(store, note))
        self._consumer = Consumer(timed, policy, self._handle, name)

    async def run(self) -> None:
        now = await self._store.now()
        process = Process(id=self._name, host="bench", started_at=now, seen_at=now)
        await self._store.register(process)
        self._note(registered=self._name)
        sweeper = Sweeper(self._store, [SweepPolicy()], lambda: replace(process))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sweeper.run())
            tasks.create_task(self._listen())
            tasks.create_task(self._consumer.run(GRACE))

    async def _listen(self) -> None:
        async for queue in self._store.wakeups():
            if queue in ("", INBOX):
                self._consumer.wake.set()

    async def _handle(self, turn: LeasedTurn) -> Done:
        event = turn.primary
        self._note(started=event.id, attempt=event.attempts, worker=self._name)
        await asyncio.sleep(float(event.event["hold"]))
        return Done()


async def main(url: str, path: str, first: int, count: int) -> None:
    note, gate = noting(path), asyncio.Semaphore(AT_ONCE)

    async def work(number: int) -> None:
        async with AsyncExitStack() as stack:
            async with gate:
                store = await stack.enter_async_context(open_store(url, pool_size=1))
            await Worker(store, f"worker-{number}", note).run()

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work(first + number)) for number in range(count)]
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: [one.cancel() for one in running])


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    given_url, given_path, given_first, given_count = sys.argv[1:]
    asyncio.run(main(given_url, given_path, int(given_first), int(given_count)))
