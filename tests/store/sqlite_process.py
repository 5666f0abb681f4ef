"""Tasks for the processes of the SQLite tests.

`python -m tests.store.sqlite_process <task> <database> …` runs one."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.queue.event import INBOX, NewEvent
from holdfast.queue.journal import JournalEntry, Step, Write
from holdfast.queue.outcome import Done
from holdfast.queue.store import Process
from holdfast.store.sqlite.store import SqliteStore

LEASE = timedelta(minutes=1)


def print_line(*words: object) -> None:
    print(*words, flush=True)


async def put_for_ever(store: SqliteStore) -> None:
    """Print each id once it is acknowledged."""
    while True:
        print_line(*await store.put([NewEvent(event={"text": "hello"})]))


async def put_one_by_one(store: SqliteStore, count: str) -> None:
    print_line("begin")
    for _ in range(int(count)):
        await store.put([NewEvent(event={"text": "hello"})])
    print_line("end")


async def put_together(store: SqliteStore, count: str) -> None:
    await asyncio.gather(
        *(store.put([NewEvent(event={"text": "hello"})]) for _ in range(int(count)))
    )


async def put_and_work(store: SqliteStore, count: str) -> None:
    """Put events into lanes that all processes share, and settle all that are ready."""
    done = 0
    for number in range(int(count)):
        await store.put(
            [NewEvent(event={}, lane=f"lane {number % 5}", message_id=f"{os.getpid()}:{number}")]
        )
        turns = await store.claim(INBOX, [""], limit=2, lease=LEASE)
        done += len(await store.settle([(turn, Done()) for turn in turns]))
    print_line(done)


async def record_steps(store: SqliteStore, target: str, count: str) -> None:
    """Claim the event of a target, and record steps and text of it at once."""
    [turn] = await store.claim(INBOX, [target], limit=1, lease=LEASE)
    print_line("claimed")

    async def record(number: int) -> None:
        step = Step(key=f"step {number}", state="done", attempt=1, result=str(number))
        await store.record(JournalEntry(turn=turn, steps=[step]))

    for number in range(int(count)):
        write = Write(1, number * len(target), target)
        await asyncio.gather(
            store.record(JournalEntry(turn=turn, write=write)),
            *(record(number * 10 + nth) for nth in range(10)),
        )


async def fill_the_disk(store: SqliteStore) -> None:
    """Put until the disk is full, then again once there is space."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * 1024, most))
    stored = 0
    try:
        while True:
            stored += len(await store.put([NewEvent(event={"text": "x" * 10_000})]))
    except StoreUnavailable as error:
        print_line(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    stored += len(await store.put([NewEvent(event={"text": "there is space"})]))
    print_line(stored)


async def live_with_a_child(store: SqliteStore) -> None:
    """Register, fork a child that lives on, and wait to be killed."""
    now = datetime.now(UTC)
    await store.register(Process(id="parent", host="here", started_at=now, seen_at=now))
    if os.fork() == 0:
        # Printed by the child: once it runs, it has closed the lock files of its parent.
        print_line(os.getpid())
        os.read(0, 1)
        os._exit(0)
    await asyncio.Event().wait()


TASKS = {
    task.__name__: task
    for task in (
        put_for_ever,
        put_one_by_one,
        put_together,
        put_and_work,
        record_steps,
        fill_the_disk,
        live_with_a_child,
    )
}


async def main(task: str, database: str, *args: str) -> None:
    async with SqliteStore(Path(database)) as store:
        await TASKS[task](store, *args)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
