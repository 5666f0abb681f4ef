"""A crew of workers on one database: born, fed, killed, and at the end judged by the checker."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from urllib.parse import urlsplit

import psycopg

from holdfast.queue.event import INBOX, OUTBOX, NewEvent
from holdfast.queue.store import Store, SweepPolicy
from holdfast.store import open_store
from holdfast.store.sqlite.lock import WriteLock
from tests.checker import Report, check
from tests.crash.worker import Orders, note
from tests.journal import Run, read_journal, read_tables

PATIENCE = 90.0
LANES = 12
ENOUGH = 10_000


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
"""By engine, PostgreSQL or not: which message each response answers."""


def until(holds: Callable[[], Any], within: float = PATIENCE) -> Any:
    """Look until it holds; what it said then."""
    give_up_at = time.monotonic() + within
    while not (found := holds()):
        assert time.monotonic() < give_up_at, "it never came to hold"
        time.sleep(0.01)
    return found


class Crew:
    """Workers by process id."""

    def __init__(self, nursery: Popen[str], url: str, folder: Path) -> None:
        self._nursery = nursery
        self.url = url
        self.folder = folder
        self.workers: list[int] = []
        self.stored: list[int] = []
        self.faults: Counter[str] = Counter()

    def hire(self, **orders: Any) -> int:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        print(
            Orders(url=self.url, folder=str(self.folder), **orders).dump(),
            file=self._nursery.stdin,
            flush=True,
        )
        worker = int(self._nursery.stdout.readline())
        self.workers.append(worker)
        return worker

    def lives(self, worker: int) -> bool:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return False
        return True

    def wait_ready(self, *workers: int) -> None:
        until(lambda: all((self.folder / f"ready-{worker}").exists() for worker in workers))

    def kill(self, worker: int, name: str = "at random") -> None:
        """kill -9, after a look at what it holds while it stands still."""
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGSTOP)
            leased = bool(self.leased_by(worker))
            os.kill(worker, signal.SIGKILL)
            note(str(self.folder), name, leased)

    def halt(self, worker: int) -> None:
        """SIGSTOP, on SQLite not inside a commit: there it would hold up all writers until it goes on."""
        if self.is_postgres:
            os.kill(worker, signal.SIGSTOP)
            return
        lock = WriteLock(Path(urlsplit(self.url).path))
        with lock:
            os.kill(worker, signal.SIGSTOP)
            # The signal is on its way only: a thread that waits for the lock may be given it before it stands still.
            until(lambda: stands_still(worker))
        lock.close()

    def kill_blindly(self, worker: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)

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
        """Past the store; {event} stands for the table."""
        if not self.is_postgres:
            with closing(sqlite3.connect(urlsplit(self.url).path, timeout=30)) as file:
                return file.execute(statement.format(event="event")).fetchall()
        with psycopg.connect(self.url) as server:
            return server.execute(statement.format(event="agent.event").encode()).fetchall()

    def write(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as server:
            server.execute(statement.encode())

    async def put(
        self, store: Store, count: int = 1, *, max_attempts: int = ENOUGH, **payload: Any
    ) -> list[int]:
        """Messages, spread over the lanes; each may be tried as often as somebody dies of it."""
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

    async def wait_drained(self, store: Store, within: float = PATIENCE) -> None:
        give_up_at = time.monotonic() + within
        while (done := (await store.outcomes(INBOX)).get("completed", 0)) < len(self.stored):
            assert time.monotonic() < give_up_at, (
                f"{done} of {len(self.stored)} messages are completed\n{self.said()}"
            )
            await asyncio.sleep(0.02)

    def dismiss(self) -> None:
        """All stop in good order."""
        for worker in self.workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)
                os.kill(worker, signal.SIGTERM)
        until(lambda: not any(map(self.lives, self.workers)), 30)

    def runs(self) -> list[Run]:
        if not (self.folder / "journal").exists():
            return []
        return read_journal(self.folder / "journal")[0]

    def kills(self) -> list[dict[str, Any]]:
        file = self.folder / "kills"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def said(self) -> str:
        died = [file.read_text() for file in self.folder.glob("died-*")]
        log = self.folder / "log"
        return "\n".join([*died, *(log.read_text().splitlines()[-20:] if log.exists() else [])])


def stands_still(worker: int) -> bool:
    """Whether all of its threads are stopped."""
    threads = Path(f"/proc/{worker}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


def holder(worker: int) -> str:
    return f"{socket.gethostname()}-{worker}_%"


@contextmanager
def nursery() -> Iterator[Popen[str]]:
    command = [sys.executable, "-m", "tests.crash.nursery"]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            # Workers are in its group, also those that stand still.
            os.killpg(process.pid, signal.SIGKILL)


async def judge(crew: Crew, *, leases_may_end: bool = False) -> Report:
    """Nothing lost, all settled once, in order, one response each; the report of what ran again.

    `leases_may_end`: also under a process that lives, because it stood still or the clock was set."""
    assert not list(crew.folder.glob("died-*")), crew.said()
    runs, faults = read_journal(crew.folder / "journal")
    report = check(
        runs, read_tables(crew.url), crew.stored, may_die=True, leases_may_end=leases_may_end
    )
    async with open_store(crew.url) as store:
        mended = [(await store.sweep(SweepPolicy(queue=queue))).mended for queue in (INBOX, OUTBOX)]
    assert mended == [0, 0], "lanes had no head"
    violations = [*faults, *report.violations, *unanswered(crew)]
    assert violations == [], "\n".join(violations[:20])
    return report


def unanswered(crew: Crew) -> list[str]:
    """Messages that have not ended with exactly one response, whoever may have put it there."""
    ended = {row.id: row.outcome for row in read_tables(crew.url)}
    answers = Counter(answered for (answered,) in crew.query(ANSWERED[crew.is_postgres]))
    return [
        f"message {id} is {ended[id] or 'live'} and has {answers[name]} responses"
        for id, name in zip(crew.stored, map(name_of, range(len(crew.stored))), strict=True)
        if ended[id] != "completed" or answers[name] != 1
    ]


def name_of(number: int) -> str:
    return f"message {number}"


def shuffled(points: tuple[str, ...], times: int) -> list[str]:
    order = list(points) * times
    random.shuffle(order)
    return order
