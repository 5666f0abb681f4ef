"""A move carries every row of every table, and changes nothing if it fails."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdfast.errors import HoldfastError
from holdfast.migrations.runner import migrate
from holdfast.queue.outcome import Done
from holdfast.settings import sqlite_path
from holdfast.store import open_store
from holdfast.store.transfer import move as moves
from holdfast.store.transfer.move import move, undo_move
from holdfast.store.transfer.tables import NOT_MOVED, TABLES
from holdfast.testing.databases import Databases
from holdfast.testing.fixtures import available
from tests.transfer.conftest import NewDatabase
from tests.transfer.filling import contents, opened, triggers

ENGINES = ("sqlite", "postgres", "timescale")
POSTGRES = ("postgres", "timescale")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_round_trip_keeps_every_row_of_every_table(
    engine: str, filled: str, new_database: NewDatabase
) -> None:
    before = contents(filled)
    middle, back = new_database(engine), new_database("sqlite")
    report = move(filled, middle)
    assert {table.name for table in report.tables} == {table.name for table in TABLES}
    assert all(table.rows for table in report.tables), "a table without rows proves nothing"
    assert report.replaced == 0
    move(middle, back)
    assert contents(back) == before


def test_a_move_between_servers_keeps_every_row(filled: str, new_database: NewDatabase) -> None:
    before = contents(filled)
    first, second, back = map(new_database, ("postgres", "timescale", "sqlite"))
    move(filled, first)
    report = move(first, second)
    assert report.rows == sum(map(len, (before[table.name] for table in TABLES)))
    move(second, back)
    assert contents(back) == before


def test_every_table_and_column_of_sqlite_is_moved_or_left_out_on_purpose(
    databases: Databases,
) -> None:
    with databases.fresh("sqlite") as url, opened(url) as connection:
        found = {
            name: {row[1] for row in connection.execute(f'pragma table_info("{name}")')}
            for (name,) in connection.execute("select name from sqlite_master where type = 'table'")
            if not name.startswith("knowledge_text_")
        }
    assert found.keys() == {table.name for table in TABLES} | NOT_MOVED.keys() - {"activity_end"}
    own = {"knowledge": {"id"}}
    for table in TABLES:
        assert found[table.name] == set(table.names) | own.get(table.name, set()), table.name


@pytest.mark.parametrize("engine", POSTGRES)
def test_every_table_and_column_of_postgresql_is_moved_or_left_out_on_purpose(
    engine: str, databases: Databases
) -> None:
    with (
        available(engine, databases.fresh(engine)) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        rows = connection.execute(
            "select tables.table_name, array_agg(column_name::text)"
            " from information_schema.tables natural join information_schema.columns"
            " where table_schema = 'agent' and table_type = 'BASE TABLE' group by 1"
        ).fetchall()
    found = {name: set(columns) for name, columns in rows}
    there = NOT_MOVED.keys() - {
        "fence",
        "observation_version",
        "sqlite_sequence",
        "knowledge_text",
    }
    assert found.keys() == {table.name for table in TABLES} | there
    own = {"knowledge": {"words"}, "activity": {"id"}}
    for table in TABLES:
        names = {column.postgres for column in table.columns}
        assert found[table.name] == names | own.get(table.name, set()), table.name


@pytest.mark.parametrize("engine", ENGINES)
async def test_work_goes_on_where_it_was(
    engine: str, databases: Databases, new_database: NewDatabase
) -> None:
    from holdfast.queue.event import NewEvent

    with databases.fresh("sqlite") as url:
        async with open_store(url) as store:
            lane = [
                NewEvent(event={"kind": "message", "n": n}, lane="a/b", message_id=f"m{n}")
                for n in range(3)
            ]
            ids = await store.put(lane)
            [turn] = await store.claim("inbox", [""], limit=1, lease=moves.WAIT_FOR_TURNS)
            await store.settle([(turn, Done())])
            [old] = await store.claim("inbox", [""], limit=1, lease=moves.WAIT_FOR_TURNS)
        target = new_database(engine)
        move(url, target)
        async with open_store(target) as store:
            assert await store.put([lane[0]]) == [None], "the dedup key is known"
            assert await store.claim("inbox", [""], limit=9, lease=moves.WAIT_FOR_TURNS) == []
            await store.settle([(old, Done())])
            [last] = await store.claim("inbox", [""], limit=9, lease=moves.WAIT_FOR_TURNS)
            assert [event.id for event in last.events] == [ids[2]]
            assert last.fence > old.fence
            [new] = await store.put([NewEvent(event={"kind": "message"})])
            assert new is not None
            assert ids[2] is not None
            assert new > ids[2]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_source_refuses_changes_afterwards_and_says_where_the_data_is(
    engine: str, filled: str, new_database: NewDatabase
) -> None:
    source, target = new_database(engine), new_database("sqlite")
    move(filled, source)
    move(source, target)
    with pytest.raises((sqlite3.Error, psycopg.Error), match="was moved to sqlite:///"):
        _change(source)
    with pytest.raises(HoldfastError, match=r"was moved to .* already"):
        move(source, new_database("sqlite"))


def _change(url: str) -> None:
    path = sqlite_path(url)
    if path is None:
        with psycopg.connect(url) as connection:
            connection.execute("update agent.event set attempts = 0")
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("update event set attempts = 0")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_dry_run_counts_and_changes_nothing(
    engine: str, filled: str, new_database: NewDatabase
) -> None:
    target, before = new_database(engine), _files(filled)
    report = move(filled, target, dry_run=True)
    assert report.dry_run
    assert [table.rows for table in report.tables if table.name == "event"] == [7]
    assert _files(filled) == before
    assert migrate(target, dry_run=True).found is None
    with opened(filled) as connection:
        connection.execute("update event set attempts = 0")


def _files(url: str) -> list[str]:
    path = sqlite_path(url)
    assert path is not None
    return sorted(one.name for one in path.parent.iterdir() if "-" not in one.name)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("is_migrated", [False, True])
def test_a_failed_move_leaves_both_databases_as_they_were(
    engine: str,
    is_migrated: bool,
    filled: str,
    new_database: NewDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target, back = new_database(engine), new_database("sqlite")
    if is_migrated:
        migrate(target)
    before, old_triggers = contents(filled), _triggers(filled)

    def differ(*_: object) -> None:
        raise HoldfastError("event differs")

    with monkeypatch.context() as patch:
        patch.setattr(moves._Move, "_compare", differ)
        with pytest.raises(HoldfastError, match="event differs; nothing was changed"):
            move(filled, target)
    assert contents(filled) == before
    assert _triggers(filled) == old_triggers
    assert (migrate(target, dry_run=True).found is not None) == is_migrated
    move(filled, target)
    move(target, back)
    assert contents(back) == before
    assert _triggers(back) == old_triggers


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("error", [HoldfastError("no space left"), KeyboardInterrupt()])
def test_a_source_that_is_half_read_takes_work_again_after_a_failure(
    engine: str,
    error: BaseException,
    filled: str,
    new_database: NewDatabase,
) -> None:
    source, target = new_database(engine), new_database("sqlite")
    move(filled, source)

    def fail(step: str, done: int, total: int) -> None:
        if step == "copying event":
            raise error

    with pytest.raises(HoldfastError, match=r"(no space left|interrupted); nothing was changed"):
        move(source, target, on_progress=fail, batch_rows=2)
    _change(source)
    assert move(source, target).rows


def test_an_unexpected_error_of_a_move_is_not_its_own_cause(
    filled: str, new_database: NewDatabase
) -> None:
    def fail(step: str, done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        move(filled, new_database("sqlite"), on_progress=fail)
    assert caught.value.__cause__ is None


def _triggers(url: str) -> list[tuple[str, str, str]]:
    with opened(url) as connection:
        return triggers(connection)


def test_a_row_that_differs_is_noticed(filled: str, new_database: NewDatabase) -> None:
    """Between copying and comparing, somebody changes one number in one row of the target."""
    target = new_database("postgres")

    def spoil(step: str, done: int, total: int) -> None:
        if step == "verifying event":
            with psycopg.connect(target) as connection:
                connection.execute("set local holdfast.move = 'on'")
                connection.execute("update agent.journal set length = length + 1")

    with pytest.raises(HoldfastError, match="journal differs: 7 rows with hash"):
        move(filled, target, on_progress=spoil)
    assert migrate(target, dry_run=True).found is None


@pytest.mark.parametrize("engine", POSTGRES)
def test_a_target_that_is_being_filled_refuses_work(
    engine: str, filled: str, new_database: NewDatabase
) -> None:
    target = new_database(engine)
    refused: list[str] = []

    def put(step: str, done: int, total: int) -> None:
        if step == "copying setting":
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction) as raised:
                _change(target)
            refused.append(str(raised.value))

    move(filled, target, on_progress=put)
    assert "is being filled from sqlite:///" in refused[0]


def test_undo_gives_up_a_move_that_was_killed(
    filled: str, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, target = contents(filled), new_database("postgres")
    with monkeypatch.context() as patch:
        # As if the process had been killed: nothing is undone.
        patch.setattr(moves, "_undone", lambda run, source, url, error: error)
        patch.setattr(moves._Move, "_compare", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            move(filled, target)
    with pytest.raises(sqlite3.IntegrityError, match="is being moved to postgresql://"):
        _change(filled)
    undo_move(filled, target)
    _change_nothing(filled)
    assert contents(filled) == before
    assert migrate(target, dry_run=True).found is None
    with pytest.raises(HoldfastError, match="there is no unfinished move"):
        undo_move(filled, target)


def _change_nothing(url: str) -> None:
    with opened(url) as connection:
        connection.execute("update event set attempts = attempts")


def test_wrong_arguments_are_refused(
    filled: str, databases: Databases, new_database: NewDatabase, tmp_path: Path
) -> None:
    new = f"sqlite:///{tmp_path}/new.db"
    with pytest.raises(HoldfastError, match="source and target are the same database"):
        move(filled, filled)
    with pytest.raises(HoldfastError, match="a database URL is sqlite:///path"):
        move(filled, "mysql://there/it")
    with pytest.raises(HoldfastError, match="there is no database"):
        move(new, filled)
    (tmp_path / "text.db").write_text("no database at all, but long enough to look at it" * 99)
    with pytest.raises(HoldfastError, match=r"the source cannot be used: .*not a database"):
        move(f"sqlite:///{tmp_path}/text.db", new)
    with databases.fresh("sqlite") as other, pytest.raises(HoldfastError) as refused:
        move(other, filled)
    assert "is not empty (event has rows): move into a new database" in str(refused.value)
    assert not Path(f"{tmp_path}/new.db").exists()


def test_a_database_of_another_version_is_refused(filled: str, new_database: NewDatabase) -> None:
    with opened(filled) as connection:
        connection.execute("update version set version = '99.0.0'")
    with pytest.raises(HoldfastError, match=r"the source cannot be used: .*99.0.0, newer"):
        move(filled, new_database("sqlite"))
    with opened(filled) as connection:
        connection.execute("update version set version = '0.7.0'")
    with pytest.raises(HoldfastError, match=r"the source is at version 0.7.0: run `holdfast migra"):
        move(filled, new_database("sqlite"))


def test_two_urls_of_one_postgresql_are_the_same_database(
    filled: str, new_database: NewDatabase
) -> None:
    url = new_database("postgres")
    with pytest.raises(HoldfastError, match="source and target are the same database"):
        move(url, f"{url}&application_name=other")
