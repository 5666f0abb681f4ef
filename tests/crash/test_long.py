"""Very many messages through faults of all kinds, checked round by round.

`make chaos ARGS="-m long"` runs it; HOLDFAST_MESSAGES is the number of messages."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.migrations.runner import migrate
from holdfast.queue.event import NewEvent
from holdfast.queue.store import Store
from holdfast.store import open_store
from holdfast.testing.servers import Unavailable
from tests.checker import check
from tests.crash.pool import WorkerPool, name_of, wait_until
from tests.crash.relay import Relay, relaying
from tests.crash.test_postgres_faults import END_ALL_OTHERS
from tests.failover.cluster import Cluster, cluster, url_of
from tests.journal import read_journal, read_tables

pytestmark = [pytest.mark.long, pytest.mark.timeout(0)]

MESSAGES = int(os.environ.get("HOLDFAST_MESSAGES", "1000000"))
ROUND = min(20_000, max(MESSAGES // 10, 500))
"""Messages of a round. Its journal is checked and forgotten, so that memory stays bounded."""
LANES = 500
BATCH = 100
BACKLOG = 2_000
WORKERS = 4
OPTIONS = {"lease": 4.0, "workers": 25, "slowness": 0.02, "delivers": True, "times_claims": True}
SUSPEND_SECONDS = 5.0
FLAT_AFTER_SECONDS = 1800.0
"""Shorter runs do not show whether the live table stays small: a server vacuums it at most once a
minute, and forgets at each failover that it is due."""
DRAIN_SECONDS = 300.0
KEYS = """
select message_id, event_id from agent.message_key
where queue = 'inbox' and event_id > {since} order by event_id
"""
LIVE = "select count(*) from {event} where queue in ('inbox', 'outbox')"
ANSWERS = """
select count(*), count(distinct event ->> 'message_id')
     , count(*) filter (where outcome <> 'completed')
from agent.event_hist where queue = 'outbox' and id > {since}
"""
SIZE = """
select pg_total_relation_size('agent.event'), coalesce(autovacuum_count, 0)
from pg_stat_user_tables where relid = 'agent.event'::regclass
"""
HOLD = b"set transaction isolation level repeatable read; select count(*) from agent.event"


@dataclass
class Round:
    """The messages of a round, their faults, and what they cost."""

    messages: int
    seconds: float
    runs: int
    reruns: int
    megabytes: float
    """Size of the live table with its indexes."""
    vacuums: int
    """Automatic vacuums of it since the last start of the primary."""
    claim_ms: float
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        return (
            f"{self.messages:>8,} messages {self.rate:>6.0f}/s {self.reruns:>5} runs again"
            f" {self.megabytes:>6.0f} MB {self.vacuums:>2} vacuums"
            f" claim {self.claim_ms:>6.1f} ms  {faults or 'no faults'}"
        )


class LongRun:
    """Rounds of messages on one cluster. Half of the workers reach it through a relay."""

    def __init__(self, patroni: Cluster, pool: WorkerPool, store: Store, relay: Relay) -> None:
        self._patroni = patroni
        self._pool = pool
        self._store = store
        self._relay = relay
        self._put = 0
        self._last_id = 0
        self._drained = asyncio.Event()
        self._faults: Counter[str] = Counter()
        database = urlsplit(pool.url).path.removeprefix("/")
        self.url = pool.url
        self._urls = [pool.url, url_of(relay.ports, database)]

    def start_worker(self) -> None:
        alive = sum(map(self._pool.is_alive, self._pool.workers))
        self._pool.start(url=self._urls[alive % 2], **OPTIONS)

    async def round(self, count: int, *, faults: bool = True) -> Round:
        """Put messages, wait until all are answered, and check their history."""
        self._drained.clear()
        self._faults = Counter()
        began_at = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            if faults:
                tasks.create_task(self._make_trouble())
            await self._put_all(count)
            await self._wait_drained()
            seconds = time.monotonic() - began_at
            self._drained.set()
        await asyncio.to_thread(self._wait_quiet)
        return await asyncio.to_thread(self._checked, count, seconds)

    async def _put_all(self, count: int) -> None:
        for first in range(self._put, self._put + count, BATCH):
            numbers = range(first, min(first + BATCH, self._put + count))
            await self._put_surely([message(number) for number in numbers])
            while await asyncio.to_thread(self._live) > BACKLOG:  # noqa: ASYNC110 - no signal
                await asyncio.sleep(0.05)
        self._put += count

    async def _put_surely(self, new: list[NewEvent]) -> None:
        while True:
            try:
                await self._store.put(new)
                return
            except StoreUnavailable:
                await asyncio.sleep(0.1)

    def _live(self) -> int:
        """Return the number of live messages and responses, very many while the server is away."""
        try:
            return int(self._pool.query(LIVE)[0][0])
        except psycopg.Error:
            return BACKLOG + 1

    async def _wait_drained(self) -> None:
        give_up_at = time.monotonic() + DRAIN_SECONDS
        while live := await asyncio.to_thread(self._live):
            assert time.monotonic() < give_up_at, f"{live} are left\n{self._pool.logs()}"
            await asyncio.sleep(0.2)

    async def _make_trouble(self) -> None:
        faults: dict[str, Callable[[], object]] = {
            "kill -9": self._kill,
            "SIGSTOP": self._suspend,
            "ended sessions": lambda: self._pool.write(END_ALL_OTHERS),
            "failover": lambda: self._patroni.kill_postgres(str(self._patroni.leader())),
            "switchover": self._patroni.switch_over,
            "dead machine": self._restart_leader,
        }
        weights = {"kill -9": 5, "SIGSTOP": 3, "partition": 3, "failover": 2}
        names = [*faults, "partition"]
        while not self._drained.is_set():
            [name] = random.choices(names, [weights.get(name, 1) for name in names])
            self._faults[name] += 1
            if name == "partition":
                await self._relay.cut(random.uniform(1, 8), drop=random.random() < 0.5)
            else:
                await asyncio.to_thread(faults[name])
                # Patroni takes a moment to notice.
                await asyncio.sleep(1)
                await asyncio.to_thread(self._wait_healthy)
            await asyncio.sleep(random.uniform(0.5, 2))

    def _wait_healthy(self) -> None:
        self._patroni.wait_writable()
        try:
            self._patroni.wait_healthy(within=30)
        except AssertionError:
            self._faults["standby copied anew"] += 1
            self._patroni.mend()
            self._patroni.wait_healthy()

    def _kill(self) -> None:
        os.kill(random.choice(self._alive()), signal.SIGKILL)
        self.start_worker()

    def _suspend(self) -> None:
        sleeper = random.choice(self._alive())
        os.kill(sleeper, signal.SIGSTOP)
        time.sleep(SUSPEND_SECONDS)
        os.kill(sleeper, signal.SIGCONT)

    def _restart_leader(self) -> None:
        leader = str(self._patroni.leader())
        self._patroni.kill_node(leader)
        self._patroni.start_node(leader)

    def _alive(self) -> list[int]:
        return [worker for worker in self._pool.workers if self._pool.is_alive(worker)]

    def _wait_quiet(self) -> None:
        """Wait until no worker writes to the journal, as one that was suspended may do late."""
        journal, size = self._pool.folder / "journal", -1
        while size != (size := journal.stat().st_size):
            time.sleep(1)

    def _checked(self, count: int, seconds: float) -> Round:
        since, folder = self._last_id, self._pool.folder
        keys = dict(self._pool.query(KEYS.format(since=since)))
        stored = [keys[name_of(number)] for number in range(self._put - count, self._put)]
        runs, faults = read_journal(folder / "journal")
        rows = read_tables(self._pool.url, since)
        report = check(runs, rows, stored, may_die=True, leases_may_end=True)
        answers = self._pool.query(ANSWERS.format(since=since))
        if answers != [(count, count, 0)]:
            faults.append(f"{count} messages have (all, distinct, failed) responses: {answers}")
        violations = faults + report.violations
        assert violations == [], "\n".join(violations[:20])
        assert self._pool.failures() == [], self._pool.logs()
        self._last_id = max(row.id for row in rows)
        claims = [float(line) for line in (folder / "claims").read_text().split()]
        [(size, vacuums)] = self._pool.query(SIZE)
        for name in ("journal", "claims"):
            os.truncate(folder / name, 0)
        faulty = Counter(self._faults)
        reruns = len(report.reruns)
        return Round(
            messages=count,
            seconds=seconds,
            runs=report.runs,
            reruns=reruns,
            megabytes=size / 1e6,
            vacuums=vacuums,
            claim_ms=median(claims),
            faults=faulty,
        )


def message(number: int) -> NewEvent:
    return NewEvent(
        event={"kind": "message", "channel": "sink", "message": "hi"},
        lane=f"lane {number % LANES}",
        message_id=name_of(number),
        max_attempts=10_000,
    )


@pytest.fixture
def patroni() -> Iterator[Cluster]:
    try:
        with cluster() as running:
            yield running
    except Unavailable as reason:
        pytest.skip(str(reason))


@asynccontextmanager
async def running(patroni: Cluster, folder: Path) -> AsyncIterator[LongRun]:
    url = patroni.create_database()
    migrate(url)
    async with relaying(patroni.ports) as relay, open_store(url) as store:
        with WorkerPool(url, folder) as pool:
            run = LongRun(patroni, pool, store, relay)
            for _ in range(WORKERS):
                run.start_worker()
            await asyncio.to_thread(
                wait_until, lambda: len(list(folder.glob("ready-*"))) == WORKERS
            )
            yield run
            await asyncio.to_thread(pool.stop)
            assert pool.failures() == [], pool.logs()


async def test_a_long_run_through_all_faults_loses_and_doubles_nothing(
    patroni: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds: list[Round] = []

    def show(name: str, found: Round) -> Round:
        with capsys.disabled():
            print(f"\n{name:>14} {found}", end="", flush=True)
        return found

    async with running(patroni, tmp_path) as run:
        while len(rounds) < MESSAGES // ROUND:
            rounds += [show(f"round {len(rounds) + 1}", await run.round(ROUND))]
        quiet = show("without faults", await run.round(ROUND, faults=False))
        with psycopg.connect(run.url) as backup:
            backup.execute(HOLD)
            held = show("held snapshot", await run.round(ROUND, faults=False))
    show("in all", total(rounds))
    assert held.rate > quiet.rate / 2
    quarter = len(rounds) // 4 or 1
    early, late = rounds[:quarter], rounds[-quarter:]
    if total(rounds).seconds > FLAT_AFTER_SECONDS:
        assert size(late) < 2 * size(early) + 10
        assert claim_time(late) < 2 * claim_time(early)


def total(rounds: list[Round]) -> Round:
    faults: Counter[str] = Counter()
    for one in rounds:
        faults += one.faults
    return Round(
        messages=sum(one.messages for one in rounds),
        seconds=sum(one.seconds for one in rounds),
        runs=sum(one.runs for one in rounds),
        reruns=sum(one.reruns for one in rounds),
        megabytes=size(rounds),
        vacuums=sum(one.vacuums for one in rounds),
        claim_ms=claim_time(rounds),
        faults=faults,
    )


def size(rounds: list[Round]) -> float:
    return max(one.megabytes for one in rounds)


def claim_time(rounds: list[Round]) -> float:
    return median(one.claim_ms for one in rounds)
