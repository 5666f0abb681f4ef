"""The one writer of SQLite: requests that wait together share a commit; each fails for itself."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.store.sqlite import writer
from holdfast.store.sqlite.lock import WriteLock
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.writer import FEW
from tests.conformance.steps import claim, claim_one, message, put


@contextmanager
def another_writer(database: Path) -> Iterator[None]:
    """Hold the write lock, so that requests gather."""
    lock = WriteLock(database)
    with lock:
        yield
    lock.close()


async def until_requested() -> None:
    """Wait until the tasks begun before this have made their requests."""
    for _ in range(3):
        await asyncio.sleep(0)


async def pragma(store: SqliteStore, name: str) -> object:
    return await store.write(lambda db: db.connection.execute(f"pragma {name}").fetchone()[0])


@pytest.mark.parametrize(
    ("name", "value"), [("synchronous", 2), ("journal_mode", "wal"), ("foreign_keys", 1)]
)
async def test_the_writer_is_durable(sqlite: SqliteStore, name: str, value: object) -> None:
    assert await pragma(sqlite, name) == value


async def test_puts_that_wait_together_share_a_commit(sqlite: SqliteStore, database: Path) -> None:
    commits = sqlite.writer.tally.commits
    with another_writer(database):
        puts = [asyncio.ensure_future(sqlite.put([message(str(number))])) for number in range(8)]
        await until_requested()
    assert [ids for [ids] in await asyncio.gather(*puts)] == list(range(1, 9))
    assert sqlite.writer.tally.commits == commits + 1


async def test_a_lone_put_has_a_commit_of_its_own(sqlite: SqliteStore) -> None:
    commits = sqlite.writer.tally.commits
    for _ in range(3):
        await put(sqlite)
    assert sqlite.writer.tally.commits == commits + 3


async def test_a_few_small_requests_that_come_together_share_a_commit(sqlite: SqliteStore) -> None:
    commits = sqlite.writer.tally.commits
    await asyncio.gather(*[put(sqlite) for _ in range(FEW)])
    assert sqlite.writer.tally.commits == commits + 1


async def test_many_small_requests_are_all_stored(sqlite: SqliteStore) -> None:
    ids = await asyncio.gather(*[put(sqlite) for _ in range(FEW + 1)])
    assert sorted(ids) == list(range(1, FEW + 2))


async def test_the_event_loop_runs_on_while_another_writer_works(
    sqlite: SqliteStore, database: Path
) -> None:
    with another_writer(database):
        putting = asyncio.ensure_future(put(sqlite))
        await asyncio.sleep(0.01)
        assert not putting.done()
    assert await putting == 1


async def test_the_event_loop_runs_on_while_a_slow_disk_commits(database: Path) -> None:
    """The commit waits for the event loop, which would wait in vain for a commit of its own."""
    disk_is_ready = threading.Event()
    waits: list[bool] = []

    def wait_for_disk(statement: str) -> None:
        if statement == "commit":
            waits.append(disk_is_ready.wait(10))

    async with SqliteStore(database, quick_seconds=0) as store:
        slowing = store.write(lambda db: db.connection.set_trace_callback(wait_for_disk))
        await asyncio.sleep(0.01)
        disk_is_ready.set()
        await slowing
        disk_is_ready.clear()
        putting = asyncio.ensure_future(put(store))
        await asyncio.sleep(0.01)
        disk_is_ready.set()
        assert await putting == 1
    assert waits == [True, True]


async def test_a_small_request_is_done_before_the_store_is_closed(database: Path) -> None:
    async with SqliteStore(database) as store:
        putting = asyncio.ensure_future(store.put([message()]))
        await asyncio.sleep(0)
        closing_at_once = asyncio.ensure_future(store.close())
        assert await putting == [1]
        await closing_at_once


async def test_a_request_that_fails_leaves_the_others_of_its_group(
    sqlite: SqliteStore, database: Path
) -> None:
    with another_writer(database):
        # Two at a time: a single event would be a small request, which comes after the others.
        good = asyncio.ensure_future(sqlite.put([message(), message()]))
        bad = asyncio.ensure_future(
            sqlite.put([message(message_id="m"), message(max_attempts="many")])
        )
        also_good = asyncio.ensure_future(sqlite.put([message(), message()]))
        await until_requested()
    with pytest.raises(HoldfastError, match="max_attempts"):
        await bad
    assert len(await claim(sqlite, limit=9)) == 4
    assert None not in await good + await also_good
    # Not even its key is stored.
    assert await sqlite.put([message(message_id="m")]) != [None]


async def test_a_put_cancelled_before_its_turn_is_not_stored(
    sqlite: SqliteStore, database: Path
) -> None:
    with another_writer(database):
        first = asyncio.ensure_future(sqlite.put([message("first")]))
        dropped = asyncio.ensure_future(sqlite.put([message("dropped")]))
        await until_requested()
        dropped.cancel()
        await until_requested()
    await first
    turns = await claim(sqlite, limit=9)
    assert [turn.primary.event for turn in turns] == [{"text": "first"}]


async def test_a_cancelled_put_does_not_affect_the_others_of_its_commit(
    sqlite: SqliteStore,
) -> None:
    dropped, *others = [
        asyncio.ensure_future(sqlite.put([message(text)])) for text in ("first", "second", "third")
    ]
    await asyncio.sleep(0)
    dropped.cancel()
    assert [await other for other in others] == [[1], [2]]
    assert dropped.cancelled()
    turns = await claim(sqlite, limit=9)
    assert [turn.primary.event["text"] for turn in turns] == ["second", "third"]


async def test_a_small_request_that_fails_alone_gets_its_error(sqlite: SqliteStore) -> None:
    good, bad = sqlite.put([message()]), sqlite.put([message(message_id="m", max_attempts="many")])
    results = await asyncio.gather(good, bad, return_exceptions=True)
    assert results[0] == [1]
    assert isinstance(results[1], HoldfastError)
    assert "max_attempts" in str(results[1])
    assert await sqlite.put([message(message_id="m")]) != [None]


@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("disk I/O error"), OSError("no locks available")]
)
async def test_all_waiting_puts_fail_if_the_transaction_cannot_begin(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def begin(connection: sqlite3.Connection) -> bool:
        raise error

    monkeypatch.setattr(writer, "try_begin", begin)
    results = await asyncio.gather(
        *[sqlite.put([message()]) for _ in range(3)], return_exceptions=True
    )
    assert [type(result) for result in results] == [
        HoldfastError if isinstance(error, sqlite3.Error) else OSError
    ] * 3
    monkeypatch.undo()
    assert await put(sqlite) == 1


async def test_turns_of_a_cancelled_claim_are_released(sqlite: SqliteStore, database: Path) -> None:
    event_id = await put(sqlite)
    given_back = asyncio.ensure_future(anext(sqlite.wakeups()))
    with another_writer(database):
        claiming = asyncio.ensure_future(claim(sqlite))
        await asyncio.sleep(0)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
    assert await asyncio.wait_for(given_back, 10) == "inbox"
    turn = await claim_one(sqlite)
    assert (turn.primary.id, turn.primary.attempts, turn.fence) == (event_id, 1, 2)


async def test_close_finishes_the_waiting_requests(database: Path) -> None:
    async with SqliteStore(database) as store:
        puts = [asyncio.ensure_future(store.put([message()])) for _ in range(50)]
        await asyncio.sleep(0)
    assert len(await asyncio.gather(*puts)) == 50


async def test_a_closed_store_refuses_a_put(database: Path) -> None:
    async with SqliteStore(database) as store:
        pass
    with pytest.raises(HoldfastError, match="closed"):
        await store.put([message()])


def fails_half_read(connection: sqlite3.Connection) -> None:
    """Fail in the middle of a query, as an unreadable row does."""
    rows = connection.execute("select key from setting")
    for _ in rows:
        raise ValueError("unreadable")


def commit_by_hand(database: Path, key: str) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as shell:
        shell.execute("insert into setting (key, value) values (?, '1')", [key])


async def test_the_writer_goes_on_while_somebody_handles_an_error_of_a_half_read_query(
    database: Path,
) -> None:
    commit_by_hand(database, "a")
    commit_by_hand(database, "b")
    async with SqliteStore(database) as store:
        errors = await asyncio.gather(
            store.write(lambda db: fails_half_read(db.connection)), return_exceptions=True
        )
        commit_by_hand(database, "c")
        assert await put(store, "hello"), errors


async def test_a_reader_sees_what_is_new_while_somebody_handles_an_error_of_a_half_read_query(
    database: Path,
) -> None:
    commit_by_hand(database, "a")
    commit_by_hand(database, "b")
    async with SqliteStore(database, readers=1) as store:
        errors = await asyncio.gather(store.read(fails_half_read), return_exceptions=True)
        commit_by_hand(database, "c")
        assert await store.setting("c") == 1, errors
