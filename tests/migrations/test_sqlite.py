"""Migrations on SQLite alone: a file, its folder, its locks, and statements one by one."""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.errors import MigrationError
from holdfast.migrations.sqlite import split
from holdfast.settings import sqlite_path
from holdfast.store.sqlite.lock import WriteLock
from tests.migrations.conftest import Scripts, ask, tables

AT_ONCE = timedelta(milliseconds=1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/some/folder/holdfast.db"


def path_of(url: str) -> Path:
    path = sqlite_path(url)
    assert path is not None
    return path


def test_the_folder_of_the_file_is_created_and_the_journal_is_a_wal(
    scripts: Scripts, url: str
) -> None:
    scripts.migrate(url)
    assert ask(url, "pragma journal_mode") == [("wal",)]


def test_times_are_microseconds(scripts: Scripts, url: str) -> None:
    before = time.time_ns() // 1000
    scripts.migrate(url)
    [(at,)] = ask(url, "select at from version")
    [(applied_at,)] = ask(url, "select applied_at from migration")
    assert before <= applied_at <= at <= time.time_ns() // 1000


def test_a_trigger_is_one_statement_and_foreign_keys_are_on(scripts: Scripts, url: str) -> None:
    scripts.incremental(
        "001-trigger.sql",
        "create table log (text text);\n"
        "create trigger note after insert on first begin\n"
        "  insert into log values (case when new.id > 0 then 'a;b' else '' end);\n"
        "  insert into log values ('c');\n"
        "end;\n"
        "insert into first values (2);\n"
        "create table keys as select foreign_keys from pragma_foreign_keys",
    )
    scripts.migrate(url)
    assert ask(url, "select text from log") == [("a;b",), ("c",)]
    assert ask(url, "select foreign_keys from keys") == [(1,)]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("", []),
        ("  \n", []),
        ("select 1;", [1]),
        ("select 1;\n\nselect 2;\n", [1, 3]),
        ("select ';';\nselect 2", [1, 2]),
        ("-- one; two\nselect 1; -- end;\n/* a; b */ select 2;", [1, 2]),
    ],
)
def test_a_script_is_split_into_its_statements(body: str, lines: list[int]) -> None:
    parts = list(split(body))
    assert [line for line, _ in parts] == lines
    with closing(sqlite3.connect(":memory:")) as connection:
        for _, statement in parts:
            connection.execute(statement)


def test_a_comment_at_the_end_is_not_run_as_a_statement(scripts: Scripts, url: str) -> None:
    scripts.incremental("001-comment.sql", "select 1;\n-- that is all\n")
    assert scripts.migrate(url).incremental


def test_a_migration_fails_if_a_writer_holds_the_file_lock_too_long(
    scripts: Scripts, url: str
) -> None:
    path_of(url).parent.mkdir(parents=True)
    steps: list[str] = []
    with Path(f"{path_of(url)}.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(MigrationError, match="another migration is running"):
            scripts.migrate(url, lock_interval=AT_ONCE, on_wait=steps.append)
    assert len(steps) == 10
    assert tables(url) == set()


def test_a_migration_queues_among_busy_writers(scripts: Scripts, url: str) -> None:
    path_of(url).parent.mkdir(parents=True)
    stop = threading.Event()

    def write_without_pause() -> None:
        with closing(WriteLock(path_of(url))) as lock:
            while not stop.is_set():
                with lock:
                    stop.wait(0.002)

    with ThreadPoolExecutor(3) as writers:
        try:
            for _ in range(3):
                writers.submit(write_without_pause)
            assert scripts.migrate(url, lock_interval=timedelta(seconds=1)).incremental
        finally:
            stop.set()


def test_scripts_applied_by_another_migrator_meanwhile_do_not_run_again(
    scripts: Scripts, url: str
) -> None:
    path_of(url).parent.mkdir(parents=True)
    with Path(f"{path_of(url)}.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def finish_the_other(step: str) -> None:
            if "try 1 " in step:
                scripts.migrate(f"{url}-other")
                shutil.copyfile(f"{path_of(url)}-other", path_of(url))
                fcntl.flock(other, fcntl.LOCK_UN)

        report = scripts.migrate(url, lock_interval=AT_ONCE, on_wait=finish_the_other)
    assert (report.due, report.incremental) == (False, ())


def test_a_migration_waits_for_a_writer_without_file_lock_then_fails(
    scripts: Scripts, url: str
) -> None:
    scripts.migrate(url, "1.0")
    with closing(sqlite3.connect(path_of(url), isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(MigrationError, match="another migration is running"):
            scripts.migrate(url, "1.1", lock_interval=AT_ONCE)
    assert ask(url, "select version from version") == [("1.0",)]


def test_the_lock_does_not_matter_if_there_is_nothing_to_do(scripts: Scripts, url: str) -> None:
    scripts.migrate(url, "1.0")
    with closing(sqlite3.connect(path_of(url), isolation_level=None)) as other:
        other.execute("begin immediate")
        assert not scripts.migrate(url, "1.0", lock_interval=AT_ONCE).due


def test_a_file_that_is_no_database_gives_an_error_of_one_line(scripts: Scripts, url: str) -> None:
    path_of(url).parent.mkdir(parents=True)
    path_of(url).write_text("This is a text, and not a short one.\n" * 100)
    with pytest.raises(
        MigrationError, match=r"holdfast\.db cannot be migrated: file is not a database"
    ):
        scripts.migrate(url)


def test_a_folder_that_cannot_be_created_gives_an_error_of_one_line(
    scripts: Scripts, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MigrationError, match=r"holdfast\.db cannot be migrated: [A-Z][a-z ]+$"):
        scripts.migrate(f"sqlite:///{tmp_path}/file/holdfast.db")


def test_relative_absolute_and_home_paths() -> None:
    assert sqlite_path("sqlite:///rel.db") == Path("rel.db")
    assert sqlite_path("sqlite:////abs/x.db") == Path("/abs/x.db")
    assert sqlite_path("sqlite:///~/x.db") == Path.home() / "x.db"
    assert sqlite_path("postgres://h/d") is None
