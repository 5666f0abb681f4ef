"""A worker process to stop, resume or kill: `python -m … URL NAME NOW TURNS`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from holdfast.errors import LeaseLost
from holdfast.queue.journal import JournalEntry, Step, Write
from holdfast.queue.outcome import Done
from holdfast.queue.store import Process, Store
from holdfast.queue.turn import LeasedTurn
from holdfast.store import open_store
from holdfast.testing.clock import Clock
from tests.conformance.steps import claim, end, message
from tests.fork_server import PipedProcess


@contextmanager
def worker_process(url: str, name: str, now: datetime, turns: int = 100) -> Iterator[PipedProcess]:
    """Claim all of the inbox, and settle when a line comes in."""
    with PipedProcess(
        "tests.conformance.worker_process", url, name, now.isoformat(), str(turns)
    ) as process:
        assert process.read_line() == "claimed"
        yield process


def finish(process: PipedProcess) -> list[str]:
    """Tell it to go on; what became of its renewal, its checkpoint, its record and its settle."""
    process.write_line("go on")
    return process.read_line().split()


async def work(url: str, name: str, now: datetime, limit: int) -> None:
    async with open_store(url, clock=Clock(now)) as store:
        await store.register(Process(id=name, host="here", started_at=now, seen_at=now))
        turns = await claim(store, limit=limit, holder=name)
        print("claimed", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(
                " ".join([word for turn in turns for word in await try_to_finish(store, turn)]),
                flush=True,
            )


async def try_to_finish(store: Store, turn: LeasedTurn) -> list[str]:
    lost = await store.renew([turn], timedelta(minutes=10))
    try:
        await store.checkpoint(turn, {"part": "sending"})
        checkpointed = "Kept"
    except LeaseLost:
        checkpointed = "LeaseLost"
    try:
        step = Step(key="a", state="done", attempt=turn.attempt, result="1")
        await store.record(JournalEntry(turn=turn, steps=[step], write=Write(1, 0, "late")))
        recorded = "Recorded"
    except LeaseLost:
        recorded = "LeaseLost"
    settled = await end(store, turn, Done((message("reply", queue="outbox"),)))
    return ["Lost" if lost else "Renewed", checkpointed, recorded, type(settled).__name__]


if __name__ == "__main__":
    asyncio.run(
        work(sys.argv[1], sys.argv[2], datetime.fromisoformat(sys.argv[3]), int(sys.argv[4]))
    )
