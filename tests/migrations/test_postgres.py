"""Migrations on PostgreSQL alone: idempotent scripts, owner, advisory lock, timeouts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from holdfast import AgentHarness
from holdfast.errors import HoldfastError, MigrationError, StoreUnavailable
from holdfast.migrations.postgres import LOCK_KEY
from holdfast.migrations.runner import migrate
from holdfast.settings import Settings
from holdfast.testing.databases import Databases
from tests.cli.shell import Shell, eventually
from tests.conformance.by_hand import insert
from tests.migrations.conftest import Scripts, ask, tables
from tests.steps import running

AT_ONCE = timedelta(0)


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{role}@{host}"))


@pytest.fixture
def stranger(postgres: str) -> Iterator[str]:
    """The URL of a role that may only log in."""
    ask(postgres, "create role stranger login")
    yield as_role(postgres, "stranger")
    ask(postgres, "drop owned by stranger cascade; drop role stranger")


@contextmanager
def lock_held(url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(url) as connection:
        connection.execute("select pg_advisory_xact_lock(%s)", [LOCK_KEY])
        yield connection


def test_the_lock_key_is_the_one_that_other_releases_use() -> None:
    assert LOCK_KEY == 31321898691465844


def test_idempotent_scripts_run_at_every_migration_after_the_incremental_ones(
    scripts: Scripts, postgres: str
) -> None:
    scripts.idempotent("000-again.sql", "insert into agent.first values (2);")
    scripts.migrate(postgres, "1.0")
    report = scripts.migrate(postgres, "1.1")
    assert report.idempotent == ("idempotent/000-again.sql",)
    assert ask(postgres, "select id from agent.first order by id") == [(1,), (2,), (2,)]
    assert ask(postgres, "select file_name from agent.migration") == [("000-first.sql",)]


def test_a_failing_idempotent_script_rolls_back_the_schema_too(
    scripts: Scripts, postgres: str
) -> None:
    scripts.idempotent("000-wrong.sql", "do $$ begin raise exception 'on\npurpose'; end $$;")
    with pytest.raises(MigrationError, match=r"idempotent/000-wrong\.sql: on purpose"):
        scripts.migrate(postgres)
    assert tables(postgres) == set()


def test_an_idempotent_script_needs_its_number_too(scripts: Scripts, postgres: str) -> None:
    scripts.idempotent("001-late.sql", "select 1;")
    with pytest.raises(MigrationError, match=r"idempotent/001-late\.sql"):
        scripts.migrate(postgres)


def test_a_schema_of_another_owner_is_refused_and_unchanged(
    scripts: Scripts, postgres: str, stranger: str
) -> None:
    ask(postgres, "create schema agent authorization stranger")
    with pytest.raises(MigrationError, match='belongs to "stranger", not to "postgres"'):
        scripts.migrate(postgres)
    assert tables(postgres) == {"agent"}


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_stranger_cannot_upgrade_the_schema_of_another(
    scripts: Scripts, postgres: str, stranger: str, dry_run: bool
) -> None:
    scripts.migrate(postgres, "1.0")
    ask(
        postgres,
        "grant usage on schema agent to stranger; grant select on agent.version to stranger",
    )
    with pytest.raises(MigrationError, match='belongs to "postgres", not to "stranger"'):
        scripts.migrate(stranger, "1.1", dry_run=dry_run)
    assert ask(postgres, "select version from agent.version") == [("1.0",)]


def test_the_owner_does_not_matter_if_there_is_nothing_to_do(
    scripts: Scripts, postgres: str, stranger: str
) -> None:
    scripts.migrate(postgres, "1.0")
    ask(
        postgres,
        "grant usage on schema agent to stranger; grant select on agent.version to stranger",
    )
    assert not scripts.migrate(stranger, "1.0").due


def test_a_role_that_may_not_read_the_version_learns_the_owner_of_the_schema(
    scripts: Scripts, postgres: str, stranger: str
) -> None:
    scripts.migrate(postgres, "1.0")
    with pytest.raises(MigrationError, match=r'to "postgres", .*grant "stranger" what a w'):
        scripts.migrate(stranger, "1.0")


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_role_that_may_not_create_schemas_is_told_what_to_grant(
    scripts: Scripts, postgres: str, stranger: str, dry_run: bool
) -> None:
    with pytest.raises(
        MigrationError, match=r'"stranger" may not create schema agent.*grant create on database'
    ):
        scripts.migrate(stranger, dry_run=dry_run)
    assert tables(postgres) == set()


def test_a_role_that_owns_the_schema_needs_no_right_to_create_one(
    scripts: Scripts, postgres: str, stranger: str
) -> None:
    ask(postgres, "create schema agent authorization stranger")
    assert scripts.migrate(stranger).incremental


def test_after_ten_tries_for_the_lock_another_migration_is_running(
    scripts: Scripts, postgres: str
) -> None:
    steps: list[str] = []
    with lock_held(postgres), pytest.raises(MigrationError, match="another migration is running"):
        scripts.migrate(postgres, lock_interval=AT_ONCE, on_wait=steps.append)
    assert len(steps) == 10
    assert tables(postgres) == set()


def test_a_migration_waits_for_a_lock_that_is_released_in_time(
    scripts: Scripts, postgres: str
) -> None:
    with lock_held(postgres) as other:
        report = scripts.migrate(
            postgres,
            lock_interval=AT_ONCE,
            on_wait=lambda step: other.rollback() if "try 3" in step else None,
        )
    assert report.incremental


def test_between_tries_no_transaction_is_open(scripts: Scripts, postgres: str) -> None:
    states: set[str] = set()
    watch = (
        "select state from pg_stat_activity "
        "where datname = current_database() and application_name = 'migrator'"
    )

    def observe(_step: str) -> None:
        states.update(state for (state,) in ask(postgres, watch))

    with lock_held(postgres), pytest.raises(MigrationError):
        scripts.migrate(
            f"{postgres}&application_name=migrator", lock_interval=AT_ONCE, on_wait=observe
        )
    assert states == {"idle"}


def test_the_lock_does_not_matter_if_there_is_nothing_to_do(
    scripts: Scripts, postgres: str
) -> None:
    scripts.migrate(postgres, "1.0")
    with lock_held(postgres):
        assert not scripts.migrate(postgres, "1.0", lock_interval=AT_ONCE).due


def test_scripts_applied_by_another_migrator_meanwhile_do_not_run_again(
    scripts: Scripts, postgres: str
) -> None:
    with lock_held(postgres) as other:

        def finish_the_other(step: str) -> None:
            if "try 1 " in step:
                other.rollback()
                scripts.migrate(postgres)

        report = scripts.migrate(postgres, lock_interval=AT_ONCE, on_wait=finish_the_other)
    assert (report.due, report.incremental) == (False, ())


def test_repeatable_read_as_default_does_not_hide_the_work_of_another_migrator(
    scripts: Scripts, postgres: str
) -> None:
    ask(
        postgres,
        "do $$ begin execute format("
        "'alter database %I set default_transaction_isolation = ''repeatable read''', "
        "current_database()); end $$",
    )
    scripts.incremental(
        "001-level.sql",
        "create table agent.level as select current_setting('transaction_isolation') l",
    )
    scripts.migrate(postgres)
    assert ask(postgres, "select l from agent.level") == [("read committed",)]


@pytest.mark.parametrize(
    ("limit", "message"),
    [("lock_timeout", "lock timeout"), ("statement_timeout", "statement timeout")],
)
def test_a_timeout_set_by_the_user_gives_an_error_of_one_line(
    scripts: Scripts, postgres: str, limit: str, message: str
) -> None:
    scripts.migrate(postgres, "1.0")
    scripts.incremental("001-add.sql", "alter table agent.first add column name text;")
    with psycopg.connect(postgres) as reader:
        reader.execute("select id from agent.first")
        with pytest.raises(
            MigrationError, match=rf"001-add\.sql: .*{message}.*try again"
        ) as failure:
            scripts.migrate(f"{postgres}&options=-c%20{limit}%3D100ms", "1.1")
    assert "\n" not in str(failure.value)
    assert ask(postgres, "select version from agent.version") == [("1.0",)]


def test_a_locked_migration_table_gives_an_error_of_one_line(
    scripts: Scripts, postgres: str
) -> None:
    scripts.migrate(postgres, "1.0")
    with psycopg.connect(postgres) as other:
        other.execute("lock table agent.migration in row exclusive mode")
        with pytest.raises(MigrationError, match=r"cannot be migrated: .*lock timeout"):
            scripts.migrate(f"{postgres}&options=-c%20lock_timeout%3D100ms", "1.1")


def test_the_records_can_be_read_during_a_migration(scripts: Scripts, postgres: str) -> None:
    scripts.migrate(postgres, "1.0")
    scripts.idempotent("000-again.sql", "select 1;")
    seen: list[object] = []
    scripts.migrate(
        postgres,
        "1.1",
        on_step=lambda _: seen.extend(ask(postgres, "select file_name from agent.migration")),
    )
    assert seen == [("000-first.sql",)]


def test_the_search_path_of_the_role_does_not_matter(scripts: Scripts, postgres: str) -> None:
    scripts.incremental(
        "001-path.sql", "create table agent.path as select current_setting('search_path') p"
    )
    scripts.migrate(f"{postgres}&options=-c%20search_path%3Delsewhere")
    assert ask(postgres, "select p from agent.path") == [("public, pg_temp",)]


def test_an_unreachable_server_gives_one_line_without_the_password() -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached") as failure:
        migrate("postgresql://u:secret@127.0.0.1:1/d")
    assert "secret" not in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_url_that_cannot_be_read_does_not_show_the_password() -> None:
    with pytest.raises(HoldfastError, match="cannot be read") as failure:
        migrate("postgresql://u:sec%zzret@h/d")
    assert "sec" not in str(failure.value)


def test_a_failed_commit_gives_an_error_of_one_line_and_changes_nothing(
    scripts: Scripts, postgres: str
) -> None:
    scripts.incremental(
        "001-deferred.sql",
        "create table agent.child "
        "(id int primary key, parent int references agent.child initially deferred);"
        "insert into agent.child values (1, 2);",
    )
    with pytest.raises(MigrationError, match=r"cannot be migrated: .*foreign key"):
        scripts.migrate(postgres)
    assert tables(postgres) == set()


def test_rows_older_than_the_checks_become_dead_letters(databases: Databases) -> None:
    with databases.fresh("postgres") as url:
        insert(url, {"vt": "'infinity'"}, checked=False)
        good = insert(url, {})
        with psycopg.connect(url, autocommit=True) as sql:
            sql.execute(
                "alter table agent.event drop constraint event_moments_readable, "
                "drop constraint event_claimed_readable, drop constraint event_numbers_readable"
            )
            sql.execute("delete from agent.migration where file_name like '%readable.sql'")
            sql.execute("update agent.version set version = '0.4.0'")
            report = migrate(url)
            assert sql.execute("select id from agent.event").fetchall() == [(good,)]
            assert sql.execute("select error_class, outcome from agent.event_hist").fetchall() == [
                ("Unreadable", "dead")
            ]
            checked = (
                "select bool_and(convalidated) from pg_constraint "
                "where conrelid = 'agent.event'::regclass"
            )
            assert sql.execute(checked).fetchone() == (True,)
        assert any("unreadable rows: 1" in warning for warning in report.warnings)


def test_workers_go_on_while_older_rows_are_checked(databases: Databases) -> None:
    """Adding the checks locks the table for a moment; validating its rows stops no worker."""
    with (
        databases.fresh("postgres") as url,
        psycopg.connect(url) as checking,
        psycopg.connect(url) as worker,
    ):
        insert(url, {}, checked=False)
        checking.execute("select agent.validate_checks()")
        worker.execute("set lock_timeout = '1s'")
        assert worker.execute("select count(*) from agent.claim_event()").fetchone() == (1,)


def test_a_migration_reports_a_lock_that_it_waits_for(scripts: Scripts, postgres: str) -> None:
    scripts.migrate(postgres)
    scripts.incremental("001-second.sql", "alter table agent.first add column name text;")
    reasons: list[str] = []
    with psycopg.connect(postgres) as reader:
        reader.execute("select * from agent.first")

        def release_lock(reason: str) -> None:
            reasons.append(reason)
            reader.rollback()

        scripts.migrate(postgres, version="2.0", on_wait=release_lock)
        assert reasons == [
            f"waiting for a lock on agent.first, held by process {reader.info.backend_pid}"
        ]


@contextmanager
def locked(url: str) -> Iterator[Callable[[], None]]:
    """A database that is due, whose migration has to wait; the function ends the wait."""
    migrate(url)
    with psycopg.connect(url, autocommit=True) as session, psycopg.connect(url) as reader:
        session.execute("update agent.version set version = '0.1.0'")
        reader.execute("select * from agent.migration for update")
        yield reader.rollback


WAIT = "waiting for a lock on agent.migration, held by process"


async def test_issue_14_16_an_app_logs_that_its_migration_waits(
    postgres: str, tmp_path: Path
) -> None:
    app = AgentHarness(lambda turn: "hi")
    reasons: list[str] = []
    with locked(postgres) as release:

        class Releaser(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if "waiting" in record.getMessage():
                    reasons.append(record.getMessage())
                    release()

        with handling(Releaser()):
            async with running(app, Settings(home=tmp_path, database=postgres)):
                pass
    assert WAIT in reasons[0]


@contextmanager
def handling(handler: logging.Handler) -> Iterator[None]:
    log = logging.getLogger("holdfast")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def test_issue_14_16_a_command_prints_that_its_migration_waits(
    postgres: str, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, postgres)
    with locked(postgres) as release:

        def release_later() -> None:
            eventually(lambda: any(WAIT in log.read_text() for log in tmp_path.glob("*.log")))
            release()

        releasing = threading.Thread(target=release_later)
        releasing.start()
        with shell.running("work") as work:
            releasing.join()
            assert "is ready" in work.ready


TIGER = """
create schema agent;
create table agent.version (version text not null, at timestamptz not null default now());
insert into agent.version (version) values ('{version}');
create table agent.migration
( file_name text not null primary key, applied_at_version text not null
, applied_at timestamptz not null default now(), body text not null );
insert into agent.migration (file_name, applied_at_version, body)
values ('000-event.sql', '{version}', '');
create table agent.event
( id int8 not null generated by default as identity primary key
, event_ts timestamptz not null default now(), attempts int4 not null default 0
, vt timestamptz not null default now(), claimed timestamptz[] not null default '{{}}'
, event jsonb not null );
create table agent.event_hist (like agent.event);
insert into agent.event (event) values ('{{"text": "theirs"}}');
"""


@pytest.mark.parametrize("version", ["0.0.1", "99.0"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_an_agent_schema_of_another_program_is_recognised_and_unchanged(
    postgres: str, version: str, dry_run: bool
) -> None:
    ask(postgres, TIGER.format(version=version))
    before = tables(postgres)
    with pytest.raises(MigrationError, match=r"another program.*holdfast import tiger"):
        migrate(postgres, dry_run=dry_run)
    assert tables(postgres) == before
    ask(postgres, "alter schema agent rename to tiger_agent")
    assert migrate(postgres).found is None
    assert ask(postgres, "select event ->> 'text' from tiger_agent.event") == [("theirs",)]


def test_doctor_does_not_promise_to_migrate_the_schema_of_another_program(
    postgres: str, tmp_path: Path
) -> None:
    ask(postgres, TIGER.format(version="0.0.1"))
    shell = Shell(tmp_path, postgres)
    done = shell.run("doctor")
    assert done.returncode == 1
    assert "tiger_agent" in done.stdout.replace("\n", "")
