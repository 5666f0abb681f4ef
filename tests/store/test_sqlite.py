"""Behaviour of SQLite alone: one writer, shared commits, plain SQL on the file."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.message import text_of
from holdfast.queue.event import Event, NewEvent
from holdfast.queue.outcome import Done, Settled
from holdfast.queue.store import Filter, Process, SweepPolicy
from holdfast.store.scoped import Scope, ScopedReads, dialect_of
from holdfast.store.sqlite import claim as claims
from holdfast.store.sqlite.lock import LockFile, WriteLock
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.sweep import KEYS
from holdfast.testing.clock import Clock
from holdfast.testing.harness import until
from tests.conformance.steps import claim, claim_one, live, message, put
from tests.store.test_sqlite_writer import another_writer


async def test_a_writer_waits_for_a_transaction_in_a_shell(
    sqlite: SqliteStore, database: Path
) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as shell:
        shell.execute("begin immediate")
        shell.execute("""insert into event (event) values ('{"text": "by hand"}')""")
        waiting = asyncio.ensure_future(put(sqlite))
        await asyncio.sleep(0)
        shell.execute("commit")
    assert await waiting == 2


async def test_a_database_locked_for_too_long_gives_one_clear_error(
    database: Path, clock: Clock
) -> None:
    async with SqliteStore(database, clock=clock, busy_seconds=0.001) as store:
        with closing(sqlite3.connect(database, isolation_level=None)) as shell:
            shell.execute("begin immediate")
            with pytest.raises(
                StoreUnavailable,
                match=r"^the database .* cannot be used right now: database is locked",
            ):
                await store.put([message()])
            shell.execute("rollback")
        assert await put(store) == 1


async def test_a_database_without_tables_asks_for_migrate(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    sqlite3.connect(path).close()
    with pytest.raises(HoldfastError, match="run `holdfast migrate`"):
        async with SqliteStore(path):
            pass


async def test_a_missing_database_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    with pytest.raises(HoldfastError, match="run `holdfast migrate`"):
        async with SqliteStore(path):
            pass
    assert not path.exists()


def test_the_write_lock_goes_to_the_waiting_writer(database: Path) -> None:
    first, second = WriteLock(database), WriteLock(database)
    order: list[str] = []

    def wait_for_lock() -> None:
        with second:
            order.append("waiting")

    with first:
        waiting = threading.Thread(target=wait_for_lock)
        waiting.start()
        next_writer = LockFile(database.with_name(database.name + ".lock-next"))
        until = time.monotonic() + 10
        while next_writer.try_lock():
            next_writer.unlock()
            assert time.monotonic() < until, "nobody waits for the lock"
    with first:
        order.append("releasing")
    waiting.join()
    assert order == ["waiting", "releasing"]
    for lock in (first, second, next_writer):
        lock.close()


async def test_a_stopped_process_in_the_queue_for_the_lock_blocks_nobody(
    sqlite: SqliteStore, database: Path
) -> None:
    with closing(LockFile(database.with_name(database.name + ".lock-next"))) as next_writer:
        next_writer.lock()
        async with asyncio.timeout(10):
            assert await put(sqlite) == 1
            async with sqlite.transaction() as tx:
                await sqlite.put([message()], tx=tx)


async def test_a_cancelled_gather_gives_back_the_events_that_joined(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first, *others] = [await put(sqlite, lane="a") for _ in range(3)]
    turn = await claim_one(sqlite)
    gather, loop = claims.gather, asyncio.get_running_loop()
    has_joined, is_cancelled = asyncio.Event(), threading.Event()

    def gather_slowly(*given: Any) -> list[Event]:
        joined = gather(*given)
        loop.call_soon_threadsafe(has_joined.set)
        assert is_cancelled.wait(10)
        return joined

    monkeypatch.setattr(claims, "gather", gather_slowly)
    gathering = asyncio.ensure_future(sqlite.gather(turn, 100))
    await has_joined.wait()
    gathering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gathering
    is_cancelled.set()
    await until(lambda: _is_waiting(sqlite, others))
    assert turn.ids == [first]
    assert (await live(sqlite, first)).fence == turn.fence


async def _is_waiting(store: SqliteStore, ids: list[int]) -> bool:
    events = [await live(store, id) for id in ids]
    return all((event.fence, event.attempts, len(event.claimed)) == (0, 0, 1) for event in events)


async def test_a_transaction_cancelled_while_waiting_releases_the_lock(
    sqlite: SqliteStore, database: Path
) -> None:
    async def join() -> None:
        async with sqlite.transaction() as tx:
            await sqlite.put([message()], tx=tx)

    with another_writer(database):
        joining = asyncio.ensure_future(join())
        await asyncio.sleep(0)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
    assert await put(sqlite) == 1


async def test_another_store_notices_a_put_by_polling_the_file(
    sqlite: SqliteStore, database: Path
) -> None:
    names = sqlite.wakeups()
    woken = asyncio.ensure_future(anext(names))
    await asyncio.sleep(0)
    async with SqliteStore(database) as other:
        await put(other)
        assert await asyncio.wait_for(woken, 10) == ""


async def test_another_store_notices_a_wake(sqlite: SqliteStore, database: Path) -> None:
    woken = asyncio.ensure_future(anext(sqlite.wakeups()))
    await asyncio.sleep(0)
    async with SqliteStore(database) as other:
        await other.wake("inbox")
        assert await asyncio.wait_for(woken, 10) == ""


async def test_a_process_that_unregisters_leaves_no_row_and_no_file(
    sqlite: SqliteStore, clock: Clock
) -> None:
    await sqlite.register(Process(id="me", host="here", started_at=clock(), seen_at=clock()))
    await sqlite.unregister("me")
    assert await sqlite.processes() == []
    assert list(sqlite.path.with_name(sqlite.path.name + ".processes").iterdir()) == []


async def test_ids_and_fences_are_never_used_twice(sqlite: SqliteStore) -> None:
    await put(sqlite)
    first = await claim_one(sqlite)
    assert await sqlite.release([first]) == [Settled(first)]
    second = await claim_one(sqlite)
    with closing(sqlite3.connect(sqlite.path)) as shell, shell:
        shell.execute("delete from event")
    assert second.fence > first.fence
    assert await put(sqlite) == 2


async def test_a_claim_of_more_events_than_sqlite_takes_parameters(sqlite: SqliteStore) -> None:
    await sqlite.put([NewEvent(event={}) for _ in range(40_000)])
    turns = await claim(sqlite, limit=40_000)
    assert len(await sqlite.release(turns)) == 40_000


async def test_many_dead_letters_are_buried_and_retried_in_batches(
    sqlite: SqliteStore, clock: Clock
) -> None:
    await sqlite.put([message(max_attempts=1) for _ in range(2500)])
    await claim(sqlite, limit=2500)
    clock.tick(minutes=11)
    assert (await sqlite.sweep(SweepPolicy())).dead == 2500
    assert len(await sqlite.retry(Filter(queue="inbox"))) == 2500


async def test_ids_grow_in_the_order_of_commits_whoever_writes(
    sqlite: SqliteStore, database: Path
) -> None:
    async with SqliteStore(database) as other, SqliteStore(database) as third:
        ids = [
            await put(store)
            for store in (sqlite, sqlite, sqlite, other, sqlite, other, other, third, sqlite)
        ]
        with closing(sqlite3.connect(database, isolation_level=None)) as shell:
            ids.append(
                shell.execute("insert into event (event) values ('{}') returning id").fetchone()[0]
            )
        ids += [await put(store) for store in (sqlite, other)]
    assert ids == sorted(set(ids))


async def test_ids_reserved_in_a_rolled_back_transaction_are_reserved_again(
    sqlite: SqliteStore,
) -> None:
    first = await put(sqlite)
    for _ in range(3):
        with pytest.raises(HoldfastError, match="max_attempts"):
            await sqlite.put([message() for _ in range(300)] + [message(max_attempts="many")])
        with pytest.raises(HoldfastError, match="max_attempts"):
            await sqlite.put([message(max_attempts="many")])
    with closing(sqlite3.connect(sqlite.path, isolation_level=None)) as shell:
        by_hand = shell.execute("insert into event (event) values ('{}') returning id").fetchone()[
            0
        ]
    assert first < by_hand < await put(sqlite)


async def test_many_keys_are_examined_in_parts_and_not_again_at_once(
    sqlite: SqliteStore, clock: Clock
) -> None:
    policy = SweepPolicy(dedup_window=timedelta(hours=1))
    old = ["", *(f"a{number}" for number in range(KEYS + 5))]

    async def complete(names: list[str]) -> None:
        await sqlite.put([message(message_id=name) for name in names])
        turns = await claim(sqlite, limit=len(names))
        await sqlite.settle([(turn, Done()) for turn in turns])

    await complete(old)
    clock.tick(minutes=61)
    await complete(["young", "younger"])
    assert (await sqlite.sweep(policy)).forgotten == len(old)
    again = [message(message_id="a1"), message(message_id="young")]
    assert await sqlite.put(again) == [len(old) + 3, None]
    # The next pass over old keys is due after a hundredth of the window.
    clock.tick(seconds=30)
    assert (await sqlite.sweep(SweepPolicy(dedup_window=timedelta(seconds=1)))).forgotten == 0
    clock.tick(seconds=10)
    assert (await sqlite.sweep(SweepPolicy(dedup_window=timedelta(seconds=1)))).forgotten == 2


async def test_payloads_larger_together_than_a_value_may_be_are_claimed(
    sqlite: SqliteStore,
) -> None:
    texts = [str(number) * 60_000 for number in range(5)]
    await sqlite.put([message(text) for text in texts])
    await sqlite.write(lambda db: db.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000))
    turns = await claim(sqlite, limit=9)
    assert [text_of(turn.primary) for turn in turns] == texts
    assert await sqlite.settle([(turn, Done()) for turn in turns]) == [
        Settled(turn) for turn in turns
    ]


async def test_a_page_with_a_broken_text_is_not_cut_short(
    sqlite: SqliteStore, database: Path
) -> None:
    ids = [await put(sqlite) for _ in range(4)]
    with closing(sqlite3.connect(database, isolation_level=None)) as shell:
        shell.execute("update event set holder = cast(x'ff' as text) where id = ?", [ids[1]])
    page = await ScopedReads(sqlite, Scope(), dialect_of(sqlite)).recent("inbox", limit=4)
    assert [event.id for event in page] == ids[::-1]
