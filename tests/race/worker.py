"""Processes that race: `python -m tests.race.worker JOB URL JOURNAL NUMBER` runs one job."""

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
POLL_SECONDS = 0.02
TRIES = 20
ROUNDS = 30
PART = 50
MOMENT_NANOSECONDS = 20_000_000
LANES = [f"lane {number}" for number in range(40)]


class Worker(ForkedProcess):
    """One process on a job; its errors go to a file."""

    def __init__(self, job: str, url: str, journal: Path, number: int) -> None:
        self._stderr = journal.with_name(f"stderr-{number}")
        with open(os.devnull, "r+") as nothing, self._stderr.open("w") as stderr:
            arguments = (job, url, str(journal), str(number))
            super().__init__(
                "tests.race.worker", *arguments, stdin=nothing, stdout=nothing, stderr=stderr
            )

    def error(self) -> str:
        """Wait for the process. Returns its error, '' if it has none."""
        code = self.wait()
        return self._stderr.read_text() or (f"ended with {code}" if code else "")


@contextmanager
def workers(job: str, url: str, journal: Path, count: int) -> Iterator[list[Worker]]:
    """Start processes on one job; kill those that still run at the end of the block."""
    processes = [Worker(job, url, journal, number) for number in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def errors_of(processes: Sequence[Worker]) -> list[str]:
    """Wait for all processes. Returns the errors of those that failed."""
    return [error for process in processes if (error := process.error())]


async def drain(store: Store, journal: Journal, number: int, lease: timedelta = LONG) -> None:
    """Work both queues until they hold no live event."""
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
                # The rest is leased by others, or delayed for a moment.
                await asyncio.sleep(POLL_SECONDS)


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
    """Claim a part of an agent's events under both its names, and hold each for a moment."""
    left = PART
    while left:
        turns = await store.claim(
            INBOX, ["coder", ""], limit=min(left, AT_ONCE), lease=LONG, holder=f"worker {number}"
        )
        left -= len(turns)
        await asyncio.gather(*(hold(store, journal, turn) for turn in turns))
        await asyncio.sleep(POLL_SECONDS / 4)


async def hold(store: Store, journal: Journal, turn: LeasedTurn) -> None:
    journal.start(turn)
    await asyncio.sleep(random.random() * POLL_SECONDS)
    journal.end(turn)
    [result] = await store.settle([(turn, Done())])
    journal.settle(turn, result)


def outcome_of(turn: LeasedTurn) -> Outcome:
    """Choose by the id of the event and its attempts, so that every run does the same."""
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
    """Put, settle with emits and renew on the same lanes and message ids, in varying orders."""
    chance = random.Random(number)
    for _ in range(ROUNDS):
        await asyncio.gather(
            store.put(shuffled(chance)),
            store.put([event for _ in range(BULK // len(LANES) + 1) for event in shuffled(chance)]),
            put_in_transaction(store, shuffled(chance)),
            settle_shuffled(store, chance),
        )


def shuffled(chance: random.Random) -> list[NewEvent]:
    """Return one event per lane, under message ids that all processes use at this moment."""
    moment = time.monotonic_ns() // MOMENT_NANOSECONDS
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
