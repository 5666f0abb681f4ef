"""Processes that race: `python -m tests.race.worker JOB URL JOURNAL NUMBER` does one job of those below."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from holdfast.queue.event import INBOX, OUTBOX, NewEvent
from holdfast.queue.outcome import Done, Outcome, Retry, Snooze
from holdfast.queue.store import Store
from holdfast.queue.turn import LeasedTurn
from holdfast.store import open_store
from holdfast.store.postgres.bulk import BULK
from tests.fork_server import ForkedProcess
from tests.journal import Journal

LONG, SHORT = timedelta(minutes=10), timedelta(seconds=2)
AT_ONCE = 25
LOOK_AGAIN = 0.02
TRIES = 20
ROUNDS = 30
PART = 50
MOMENT = 20_000_000
LANES = [f"lane {number}" for number in range(40)]


class Worker(ForkedProcess):
    """One process on a job; what it complains of goes to a file."""

    def __init__(self, job: str, url: str, journal: Path, number: int) -> None:
        self._complaint = journal.with_name(f"complaint-{number}")
        with open(os.devnull, "r+") as nothing, self._complaint.open("w") as stderr:
            arguments = (job, url, str(journal), str(number))
            super().__init__(
                "tests.race.worker", *arguments, stdin=nothing, stdout=nothing, stderr=stderr
            )

    def complaint(self) -> str:
        """Waits for it; nothing if all went well."""
        code = self.wait()
        return self._complaint.read_text() or (f"ended with {code}" if code else "")


@contextmanager
def workers(job: str, url: str, journal: Path, count: int) -> Iterator[list[Worker]]:
    """So many processes on one job, killed at the end of the block if they still run."""
    processes = [Worker(job, url, journal, number) for number in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def complaints(processes: Sequence[Worker]) -> list[str]:
    """Waits for all; the errors of those that failed."""
    return [said for process in processes if (said := process.complaint())]


async def drain(store: Store, journal: Journal, number: int, lease: timedelta = LONG) -> None:
    """Work both queues until nothing lives in them."""
    busy = True
    while busy:
        busy = False
        for queue in (INBOX, OUTBOX):
            turns = await store.claim(
                queue,
                [""],
                limit=AT_ONCE,
                lease=lease,
                holder=f"worker {number}",
                max_attempts=TRIES,
            )
            await asyncio.gather(*(handle(store, journal, turn) for turn in turns))
            if turns or await store.next_due(queue, [""]) is not None:
                busy = True
            if not turns:
                # What is left is in the hands of others, or put back for a moment.
                await asyncio.sleep(LOOK_AGAIN)


async def drain_with_short_leases(store: Store, journal: Journal, number: int) -> None:
    await drain(store, journal, number, SHORT)


async def handle(store: Store, journal: Journal, turn: LeasedTurn) -> None:
    outcome = outcome_of(turn)
    journal.start(turn)
    await asyncio.sleep(0)
    journal.end(turn, emits=len(outcome.emits) if isinstance(outcome, Done) else 0)
    [result] = await store.settle([(turn, outcome)], max_attempts=TRIES)
    journal.settle(turn, result)


async def hold_limited(store: Store, journal: Journal, number: int) -> None:
    """Take one's part of an agent's work under both its names, as much at once as one may, and hold it for a moment."""
    left = PART
    while left:
        turns = await store.claim(
            INBOX, ["coder", ""], limit=min(left, AT_ONCE), lease=LONG, holder=f"worker {number}"
        )
        left -= len(turns)
        await asyncio.gather(*(hold(store, journal, turn) for turn in turns))
        await asyncio.sleep(LOOK_AGAIN / 4)


async def hold(store: Store, journal: Journal, turn: LeasedTurn) -> None:
    journal.start(turn)
    await asyncio.sleep(random.random() * LOOK_AGAIN)
    journal.end(turn)
    [result] = await store.settle([(turn, Done())])
    journal.settle(turn, result)


def outcome_of(turn: LeasedTurn) -> Outcome:
    """By the number of the event and how often it was tried, so that every run of the test does the same."""
    number, first = turn.primary.id, len(turn.primary.claimed) == 1
    if first and number % 97 == 0:
        return Retry("again", timedelta(milliseconds=number % 7))
    if first and number % 89 == 0:
        return Snooze(timedelta(milliseconds=number % 5))
    if turn.queue == INBOX and number % 10 == 0:
        return Done(
            (
                NewEvent(
                    event={"reply": number}, queue=OUTBOX, lane=LANES[number // 10 % len(LANES)]
                ),
            )
        )
    return Done()


async def shuffle(store: Store, journal: Journal, number: int) -> None:
    """Bulk puts, settles with emits and renewals that touch the same lanes and message ids in ever other orders."""
    chance = random.Random(number)
    for _ in range(ROUNDS):
        await asyncio.gather(
            store.put(shuffled(chance)),
            store.put([event for _ in range(BULK // len(LANES) + 1) for event in shuffled(chance)]),
            put_in_transaction(store, shuffled(chance)),
            settle_shuffled(store, chance),
        )


def shuffled(chance: random.Random) -> list[NewEvent]:
    """One event for each lane, under message ids that all processes use at this moment."""
    moment = time.monotonic_ns() // MOMENT
    return [
        NewEvent(event={}, lane=lane, message_id=f"{lane} at {moment} {chance.randrange(9)}")
        for lane in chance.sample(LANES, len(LANES))
    ]


async def put_in_transaction(store: Store, events: Sequence[NewEvent]) -> None:
    async with store.transaction() as transaction:
        await store.put(events, tx=transaction)


async def settle_shuffled(store: Store, chance: random.Random) -> None:
    turns = await store.claim(INBOX, [""], limit=len(LANES) // 2, lease=LONG)
    chance.shuffle(turns)
    await store.renew(turns, LONG)
    emits = [
        NewEvent(event={}, queue=chance.choice((INBOX, OUTBOX)), lane=lane)
        for lane in chance.sample(LANES, len(turns))
    ]
    await store.settle([(turn, Done((emit,))) for turn, emit in zip(turns, emits, strict=True)])


JOBS = {job.__name__: job for job in (drain, drain_with_short_leases, hold_limited, shuffle)}


async def main(job: str, url: str, path: str, number: str) -> None:
    async with open_store(url) as store:
        with Journal(path) as journal:
            await JOBS[job](store, journal, int(number))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
