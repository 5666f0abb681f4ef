"""Rules of migrations on every engine."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from holdfast.errors import HoldfastError, MigrationError
from holdfast.migrations.runner import migrate
from holdfast.settings import sqlite_path
from tests.migrations.conftest import Query, Scripts, tables


def test_a_new_database_gets_every_script_and_the_version(
    scripts: Scripts, empty_url: str, query: Query
) -> None:
    report = scripts.migrate(empty_url, "1.0")
    assert report.found is None
    assert query("select version from agent.version") == [("1.0",)]
    assert query("select file_name, applied_at_version from agent.migration") == [
        ("000-first.sql", "1.0")
    ]
    assert query("select id from agent.first") == [(1,)]


def test_an_equal_version_is_nothing_to_do(scripts: Scripts, empty_url: str, query: Query) -> None:
    scripts.migrate(empty_url, "1.0")
    scripts.incremental("001-second.sql", "create table agent.second (id int);")
    report = scripts.migrate(empty_url, "1.0")
    assert (report.due, report.incremental, report.idempotent) == (False, (), ())
    assert "second" not in tables(empty_url)


def test_a_newer_database_is_refused_with_both_versions_and_unchanged(
    scripts: Scripts, empty_url: str, query: Query
) -> None:
    scripts.migrate(empty_url, "1.10")
    scripts.incremental("001-second.sql", "create table agent.second (id int);")
    with pytest.raises(MigrationError, match=r"1\.10.*1\.9"):
        scripts.migrate(empty_url, "1.9")
    assert "second" not in tables(empty_url)
    assert query("select version from agent.version") == [("1.10",)]


def test_an_older_database_gets_only_new_scripts(
    scripts: Scripts, empty_url: str, query: Query
) -> None:
    scripts.migrate(empty_url, "1.0")
    scripts.incremental("001-second.sql", "create table agent.second (id int);")
    report = scripts.migrate(empty_url, "1.1")
    assert [label.split("/")[1] for label in report.incremental] == ["001-second.sql"]
    assert query("select id from agent.first") == [(1,)]
    recorded = query("select file_name, applied_at_version from agent.migration order by file_name")
    assert recorded == [("000-first.sql", "1.0"), ("001-second.sql", "1.1")]
    assert query("select version from agent.version") == [("1.1",)]


def test_a_pre_release_is_older_than_its_release(scripts: Scripts, empty_url: str) -> None:
    for version in ("1.0.dev1", "1.0a1", "1.0b2", "1.0rc1", "1.0", "1.0.1"):
        assert scripts.migrate(empty_url, version).due
    assert not scripts.migrate(empty_url, "1.0.1.0").due


def test_a_recorded_script_keeps_its_body(scripts: Scripts, empty_url: str, query: Query) -> None:
    body = "-- 100 % done\nselect '50%s %';\n"
    scripts.incremental("001-percent.sql", body)
    scripts.migrate(empty_url)
    assert query("select body from agent.migration where file_name = '001-percent.sql'") == [
        (body,)
    ]


def test_a_changed_script_is_a_warning_that_names_it_and_does_not_run(
    scripts: Scripts, empty_url: str, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    scripts.migrate(empty_url, "1.0")
    scripts.incremental("000-first.sql", "create table agent.other (id int);")
    with caplog.at_level(logging.WARNING):
        [warning] = scripts.migrate(empty_url, "1.1").warnings
    assert "000-first.sql" in warning
    assert warning in caplog.text
    assert "other" not in tables(empty_url)
    assert query("select version from agent.version") == [("1.1",)]


def test_an_applied_script_that_is_gone_is_a_warning(scripts: Scripts, empty_url: str) -> None:
    scripts.incremental("001-second.sql", "create table agent.second (id int);")
    scripts.migrate(empty_url, "1.0")
    for path in scripts.folder.glob("*/001-second.sql"):
        path.unlink()
    [warning] = scripts.migrate(empty_url, "1.1").warnings
    assert "001-second.sql" in warning


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("002-gap.sql", "number 001"),
        ("000-twice.sql", "number 001"),
        ("01-short.sql", "NNN-name.sql"),
        ("001.sql", "NNN-name.sql"),
        ("nameless.sql", "NNN-name.sql"),
        ("001-loud.SQL", "NNN-name.sql"),
    ],
)
def test_a_wrong_script_name_is_refused_before_any_change(
    scripts: Scripts, empty_url: str, name: str, problem: str
) -> None:
    scripts.incremental(name, "select 1;")
    with pytest.raises(MigrationError) as refusal:
        scripts.migrate(empty_url)
    assert name in str(refusal.value)
    assert problem in str(refusal.value)
    assert tables(empty_url) == set()


def test_scripts_that_do_not_start_at_000_are_refused(scripts: Scripts, empty_url: str) -> None:
    for path in scripts.folder.glob("*/000-first.sql"):
        path.rename(path.with_name("001-first.sql"))
    with pytest.raises(MigrationError, match=r"001-first\.sql.*number 000"):
        scripts.migrate(empty_url)


def test_a_failing_script_rolls_back_everything(scripts: Scripts, empty_url: str) -> None:
    scripts.incremental(
        "001-wrong.sql", "create table agent.second (id int);\n\nselect x from nowhere;"
    )
    with pytest.raises(MigrationError, match=r"001-wrong\.sql, line 3: .*nowhere") as failure:
        scripts.migrate(empty_url)
    assert "\n" not in str(failure.value)
    assert tables(empty_url) == set()


def test_a_failing_upgrade_leaves_the_old_version(
    scripts: Scripts, empty_url: str, query: Query
) -> None:
    scripts.migrate(empty_url, "1.0")
    before = tables(empty_url)
    scripts.incremental("001-second.sql", "create table agent.second (id int);")
    scripts.incremental("002-wrong.sql", "select x from nowhere;")
    with pytest.raises(MigrationError, match=r"002-wrong\.sql"):
        scripts.migrate(empty_url, "1.1")
    assert tables(empty_url) == before
    assert query("select version from agent.version") == [("1.0",)]
    assert query("select file_name from agent.migration") == [("000-first.sql",)]


@pytest.mark.parametrize("statement", ["commit;", "rollback;"])
def test_a_script_that_ends_the_transaction_is_named(
    scripts: Scripts, empty_url: str, statement: str
) -> None:
    scripts.incremental("001-wrong.sql", statement)
    with pytest.raises(MigrationError, match=r"001-wrong\.sql ends the transaction"):
        scripts.migrate(empty_url)


def test_a_dry_run_reports_the_scripts_and_leaves_nothing_behind(
    scripts: Scripts, empty_url: str
) -> None:
    report = scripts.migrate(empty_url, dry_run=True)
    assert (report.dry_run, report.due, len(report.incremental)) == (True, True, 1)
    assert tables(empty_url) == set()
    path = sqlite_path(empty_url)
    assert path is None or list(path.parent.iterdir()) == []


def test_a_dry_run_of_an_upgrade_reports_only_new_scripts(
    scripts: Scripts, empty_url: str, query: Query
) -> None:
    scripts.migrate(empty_url, "1.0")
    path = sqlite_path(empty_url)
    files = path and set(path.parent.iterdir())
    scripts.incremental("001-second.sql", "create table agent.second (id int);")
    report = scripts.migrate(empty_url, "1.1", dry_run=True)
    # Compared before the next connection, which would clean up.
    assert files == (path and set(path.parent.iterdir()))
    assert [label.split("/")[1] for label in report.incremental] == ["001-second.sql"]
    assert query("select version from agent.version") == [("1.0",)]
    assert "second" not in tables(empty_url)


def test_the_version_table_holds_one_row(scripts: Scripts, empty_url: str, query: Query) -> None:
    scripts.migrate(empty_url)
    with pytest.raises(Exception, match=r"(?i)unique"):
        query("insert into agent.version (version, at) select '2.0', at from agent.version")


def test_two_migrators_at_once_both_succeed_and_scripts_run_once(
    scripts: Scripts, empty_url: str, query: Query
) -> None:
    with ThreadPoolExecutor(4) as pool:
        interval = timedelta(milliseconds=200)
        runs = [pool.submit(scripts.migrate, empty_url, lock_interval=interval) for _ in range(4)]
    assert sorted(len(run.result().incremental) for run in runs) == [0, 0, 0, 1]
    assert sorted(run.result().due for run in runs) == [False, False, False, True]
    assert query("select id from agent.first") == [(1,)]


def test_steps_are_reported_as_they_begin(scripts: Scripts, empty_url: str) -> None:
    steps: list[str] = []
    report = scripts.migrate(empty_url, on_step=steps.append)
    assert steps == list(report.incremental)


def test_the_packaged_scripts_migrate_an_empty_database_and_are_a_no_op_the_second_time(
    empty_url: str,
) -> None:
    assert migrate(empty_url).incremental
    assert not migrate(empty_url).due


def test_a_folder_without_scripts_is_an_incomplete_installation(
    empty_url: str, scripts: Scripts
) -> None:
    with pytest.raises(MigrationError, match="incomplete"):
        migrate(empty_url, scripts=scripts.folder / "nothing")


@pytest.mark.parametrize(
    "url", ["", "holdfast.db", "mysql://u:secret@h/d", "sqlite://x.db", "sqlite:///:memory:"]
)
def test_another_kind_of_url_is_refused_naming_what_is_allowed(url: str) -> None:
    with pytest.raises(HoldfastError, match=r"sqlite:///.*postgresql://") as refusal:
        migrate(url)
    assert "secret" not in str(refusal.value)
