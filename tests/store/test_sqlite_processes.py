"""Several processes on one SQLite file: killed, many, on a full disk, with children."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.queue.event import NewEvent
from holdfast.queue.store import Process
from holdfast.store.sqlite import process as processes
from holdfast.store.sqlite.process import ProcessLocks
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.watch import Watch
from tests.conformance.steps import LEASE, claim_one


def start(
    task: str, database: Path, *args: str, under: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    command = [
        *under,
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.store.sqlite_process",
        task,
        str(database),
        *args,
    ]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def output_of(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return output


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as shell:
        return shell.execute(query).fetchall()


def syncs(task: str, database: Path, count: int) -> int:
    """Count the syncs of a process that puts `count` events."""
    if shutil.which("strace") is None:
        reason = "strace is not installed"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    log = database.with_name("strace")
    under = (
        "strace",
        "-f",
        "-qq",
        "-e",
        "trace=fsync,fdatasync",
        "-e",
        "signal=none",
        "-o",
        str(log),
    )
    output_of(start(task, database, str(count), under=under))
    return len(re.findall(r"(?:fsync|fdatasync)\(", log.read_text()))


def test_every_acknowledged_put_was_synced(database: Path) -> None:
    at_rest = syncs("put_one_by_one", database, 0)
    assert syncs("put_one_by_one", database, 40) - at_rest >= 40


def test_puts_that_wait_together_share_a_sync(database: Path) -> None:
    at_rest = syncs("put_together", database, 0)
    assert 1 <= syncs("put_together", database, 100) - at_rest <= 20


def test_kill_9_loses_nothing_acknowledged(database: Path) -> None:
    process = start("put_for_ever", database)
    acknowledged = [int(next_line(process)) for _ in range(100)]
    process.kill()
    rest, _ = process.communicate()
    acknowledged += [int(line) for line in rest.split("\n")[:-1]]
    stored = {id for (id,) in rows(database, "select id from event")}
    assert stored >= set(acknowledged)


def test_a_killed_writer_does_not_hold_up_others(database: Path) -> None:
    first = start("put_for_ever", database)
    second = start("put_for_ever", database)
    next_line(first), next_line(second)
    first.kill()
    first.communicate()
    [(last,)] = rows(database, "select max(id) from event")
    while int(next_line(second)) <= last:
        pass
    second.kill()
    second.communicate()


def test_many_processes_use_one_file_without_an_error(database: Path) -> None:
    processes = [start("put_and_work", database, "100") for _ in range(4)]
    done = sum(int(output_of(process)) for process in processes)
    [(live,)] = rows(database, "select count(*) from event")
    [(finished,)] = rows(database, "select count(*) from event_hist where outcome = 'completed'")
    assert (done, live + finished) == (finished, 400)
    assert rows(database, "pragma integrity_check") == [("ok",)]


def test_a_full_disk_gives_one_clear_error_and_puts_work_again_afterwards(database: Path) -> None:
    error, stored = output_of(start("fill_the_disk", database)).splitlines()
    assert re.match(r"the database .* cannot be used right now: .*; try again$", error)
    [(count,)] = rows(database, "select count(*) from event")
    assert int(stored) == count > 1
    assert rows(database, "pragma integrity_check") == [("ok",)]


def test_a_forked_child_does_not_keep_the_lock_of_its_parent(database: Path) -> None:
    parent = start("live_with_a_child", database)
    child = int(next_line(parent))
    locks = ProcessLocks(database, Watch())
    assert not locks.is_dead("parent")
    parent.kill()
    parent.wait()
    os.kill(child, 0)
    assert locks.is_dead("parent")
    os.kill(child, signal.SIGKILL)
    parent.communicate()


@pytest.mark.parametrize("id_", ["", ".", "/", "x" * 256, "\ue002" * 40_000])
async def test_a_process_written_by_hand_under_any_id_is_reaped(database: Path, id_: str) -> None:
    seconds = [0.0]
    async with SqliteStore(database, watch=Watch(monotonic=lambda: seconds[0])) as store:
        now = datetime.now(UTC)
        await store.register(Process(id="own", host="here", started_at=now, seen_at=now))
        with closing(sqlite3.connect(database, isolation_level=None)) as shell:
            shell.execute(
                "insert into process (id, host, started_at, seen_at) values (?, 'h', 1, 1)", [id_]
            )
        assert await store.reap() == []
        seconds[0] += 60
        assert await store.reap() == [id_]
        assert [process.id for process in await store.processes()] == ["own"]


async def test_turns_of_a_killed_process_come_back_within_seconds(database: Path) -> None:
    seconds = [0.0]
    parent = start("live_with_a_child", database)
    next_line(parent)
    async with SqliteStore(database, watch=Watch(monotonic=lambda: seconds[0])) as store:
        await store.put([NewEvent(event={})])
        held = await store.claim("inbox", [""], limit=1, lease=LEASE, holder="parent")
        assert await store.reap() == []
        parent.kill()
        parent.communicate()
        assert await store.reap() == []
        seconds[0] = 1.9
        assert await store.reap() == []
        seconds[0] = 2.0
        assert await store.reap() == ["parent"]
        assert await store.processes() == []
        assert (await claim_one(store)).fence > held[0].fence


async def test_two_processes_cannot_have_one_id(database: Path) -> None:
    now = datetime.now(UTC)
    process = Process(id="../same", host="here", started_at=now, seen_at=now)
    async with SqliteStore(database) as store, SqliteStore(database) as other:
        await store.register(process)
        with pytest.raises(Exception, match="another id"):
            await other.register(process)
    assert [file.name for file in database.with_name(database.name + ".processes").iterdir()] == [
        "%2E%2E%2Fsame"
    ]


async def test_two_processes_record_steps_at_once_and_nothing_is_lost(database: Path) -> None:
    names, rounds = ("one", "two"), 30
    async with SqliteStore(database) as store:
        events = [NewEvent(event={}, target=name) for name in names]
        ids = await store.put(events)
        processes = [start("record_steps", database, name, str(rounds)) for name in names]
        assert [next_line(process) for process in processes] == ["claimed"] * 2
        for process in processes:
            output_of(process)
        for name, id_ in zip(names, ids, strict=True):
            assert id_ is not None
            journal = await store.journal(id_)
            assert journal.text == name * rounds
            wanted = {f"step {number}": str(number) for number in range(rounds * 10)}
            assert {step.key: step.result for step in journal.steps.values()} == wanted


async def test_a_reaper_leaves_the_lock_file_of_a_process_that_came_back(
    sqlite: SqliteStore, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts between the moment the dead one is reaped and the removal of its lock file."""
    dead, back = (ProcessLocks(database, Watch()) for _ in range(2))
    dead.hold("one")
    dead.close()
    now = await sqlite.now()
    await sqlite.write(
        lambda db: processes.put_process(
            db, Process(id="one", host="here", started_at=now, seen_at=now)
        )
    )
    reap_process = processes.reap_process

    def reap_slowly(*args: Any, **options: Any) -> bool:
        is_reaped = reap_process(*args, **options)
        back.hold("one")
        return is_reaped

    monkeypatch.setattr(processes, "reap_process", reap_slowly)
    async with SqliteStore(database, watch=Watch(timedelta())) as reaper:
        while not await reaper.reap():
            pass
    assert not ProcessLocks(database, Watch()).is_dead("one")
    back.close()
