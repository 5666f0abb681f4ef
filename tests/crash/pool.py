"""A pool of worker processes on one database, and the check of their history."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import psycopg

from holdfast.queue.event import INBOX, OUTBOX, NewEvent
from holdfast.queue.store import Store, SweepPolicy
from holdfast.store import open_store
from holdfast.store.sqlite.lock import WriteLock
from tests.checker import Report, check
from tests.crash.worker import WorkerOptions, note
from tests.fork_server import ForkedProcess
from tests.journal import Run, read_journal, read_tables

WAIT_SECONDS = 90.0
LANES = 12
MANY_ATTEMPTS = 10_000


ANSWERED = {
    True: """
select event ->> 'message_id' from agent.event where queue = 'outbox'
union all select event ->> 'message_id' from agent.event_hist where queue = 'outbox'
""",
    False: """
select event ->> 'message_id' from event where queue = 'outbox'
union all select event ->> 'message_id' from event_hist where queue = 'outbox'
""",
}
"""The message that each response answers, on PostgreSQL (True) and on SQLite."""


def wait_until(condition: Callable[[], Any], within: float = WAIT_SECONDS) -> Any:
    """Poll until a condition is true. Returns its value."""
    give_up_at = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < give_up_at, "the condition never became true"
        time.sleep(0.01)
    return found


class WorkerPool:
    """Worker processes on one database, known by their process ids.

    All that still run are killed at the end of the block."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.stored: list[int] = []
        self._processes: dict[int, ForkedProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    @property
    def workers(self) -> list[int]:
        return list(self._processes)

    def start(self, **options: Any) -> int:
        """Start a worker. Returns its process id."""
        own = {"url": self.url, "folder": str(self.folder)}
        dumped = WorkerOptions(**own | options).dump()
        with open(os.devnull, "r+") as null, open(self.folder / "errors", "a") as errors:
            process = ForkedProcess(
                "tests.crash.worker", dumped, stdin=null, stdout=null, stderr=errors
            )
        self._processes[process.pid] = process
        return process.pid

    def is_alive(self, worker: int) -> bool:
        return self._processes[worker].poll() is None

    def wait_ready(self, *workers: int) -> None:
        wait_until(lambda: all((self.folder / f"ready-{worker}").exists() for worker in workers))

    def kill(self, worker: int, name: str = "at random") -> None:
        """Send SIGKILL, and note whether the worker held a lease; it is suspended meanwhile."""
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGSTOP)
            leased = bool(self.leased_by(worker))
            os.kill(worker, signal.SIGKILL)
            note(str(self.folder), name, leased)

    def suspend(self, worker: int) -> None:
        suspend(self.url, worker)

    def leased_by(self, worker: int) -> list[int]:
        like = holder(worker)
        return [
            id
            for (id,) in self.query(
                f"select id from {{event}} where fence > 0 and holder like '{like}'"
            )
        ]

    @property
    def is_postgres(self) -> bool:
        return not self.url.startswith("sqlite")

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Query the database directly; {event} stands for the table."""
        if not self.is_postgres:
            with closing(sqlite3.connect(urlsplit(self.url).path, timeout=30)) as file:
                return file.execute(statement.format(event="event")).fetchall()
        with psycopg.connect(self.url) as server:
            return server.execute(statement.format(event="agent.event").encode()).fetchall()

    def write(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as server:
            server.execute(statement.encode())

    async def put(
        self, store: Store, count: int = 1, *, max_attempts: int = MANY_ATTEMPTS, **payload: Any
    ) -> list[int]:
        """Put messages over all lanes, with attempts enough for every kill. Returns their ids."""
        first = len(self.stored)
        new = [
            NewEvent(
                event={"kind": "message", "channel": "api", "message": "hi", **payload},
                lane=f"lane {number % LANES}",
                message_id=name_of(number),
                max_attempts=max_attempts,
            )
            for number in range(first, first + count)
        ]
        ids = [id for id in await store.put(new) if id is not None]
        self.stored += ids
        return ids

    async def wait_drained(self, store: Store, within: float = WAIT_SECONDS) -> None:
        give_up_at = time.monotonic() + within
        while (done := (await store.outcomes(INBOX)).get("completed", 0)) < len(self.stored):
            assert time.monotonic() < give_up_at, (
                f"{done} of {len(self.stored)} messages are completed\n{self.logs()}"
            )
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        """Stop all workers gracefully."""
        for worker in self.workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)
                os.kill(worker, signal.SIGTERM)
        wait_until(lambda: not any(map(self.is_alive, self.workers)), 30)

    def runs(self) -> list[Run]:
        if not (self.folder / "journal").exists():
            return []
        return read_journal(self.folder / "journal")[0]

    def kills(self) -> list[dict[str, Any]]:
        file = self.folder / "kills"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def failures(self) -> list[int]:
        """Return the workers that ended with an error, other than by a kill."""
        ended = {worker: process.poll() for worker, process in self._processes.items()}
        return [worker for worker, code in ended.items() if code not in (None, 0, -signal.SIGKILL)]

    def logs(self) -> str:
        files = [self.folder / name for name in ("errors", "log")]
        lines = [file.read_text().splitlines() for file in files if file.exists()]
        return "\n".join(line for file in lines for line in file[-20:])


def suspend(url: str, worker: int) -> None:
    """Send SIGSTOP; on SQLite not inside a commit, which would block all writers."""
    if not url.startswith("sqlite"):
        os.kill(worker, signal.SIGSTOP)
        return
    lock = WriteLock(Path(urlsplit(url).path))
    with lock:
        os.kill(worker, signal.SIGSTOP)
        # The signal takes a moment: a waiting thread could still get the lock after us.
        wait_until(lambda: is_suspended(worker))
    lock.close()


def is_suspended(worker: int) -> bool:
    """Return whether all threads of a process are stopped."""
    threads = Path(f"/proc/{worker}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


def holder(worker: int) -> str:
    return f"{socket.gethostname()}-{worker}_%"


async def check_history(pool: WorkerPool, *, leases_may_end: bool = False) -> Report:
    """Check that nothing was lost, that all was settled once, in order, with one response each.

    `leases_may_end`: a lease may also end under a living process, because that process was
    suspended or the clock was set. Returns a report that names the events that ran again."""
    assert pool.failures() == [], pool.logs()
    runs, faults = read_journal(pool.folder / "journal")
    report = check(
        runs, read_tables(pool.url), pool.stored, may_die=True, leases_may_end=leases_may_end
    )
    async with open_store(pool.url) as store:
        repaired = [
            (await store.sweep(SweepPolicy(queue=queue))).repaired_lanes
            for queue in (INBOX, OUTBOX)
        ]
    assert repaired == [0, 0], "lanes had no head"
    violations = [*faults, *report.violations, *unanswered(pool)]
    assert violations == [], "\n".join(violations[:20])
    return report


def unanswered(pool: WorkerPool) -> list[str]:
    """Describe the messages that did not complete with exactly one response."""
    ended = {row.id: row.outcome for row in read_tables(pool.url)}
    answers = Counter(answered for (answered,) in pool.query(ANSWERED[pool.is_postgres]))
    return [
        f"message {id} is {ended[id] or 'live'} and has {answers[name]} responses"
        for id, name in zip(pool.stored, map(name_of, range(len(pool.stored))), strict=True)
        if ended[id] != "completed" or answers[name] != 1
    ]


def name_of(number: int) -> str:
    return f"message {number}"


def shuffled(points: tuple[str, ...], times: int) -> list[str]:
    order = list(points) * times
    random.shuffle(order)
    return order
