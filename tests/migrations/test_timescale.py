"""TimescaleDB for an ordinary owner, from the start or later, on a real server."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from holdfast.cli.doctor import _timescale
from holdfast.migrations.runner import migrate
from holdfast.migrations.timescale import use_timescale
from holdfast.store.facts import facts
from holdfast.testing.databases import Databases
from holdfast.testing.fixtures import available
from tests.cli.shell import Shell
from tests.migrations.conftest import Scripts
from tests.migrations.test_postgres import as_role

HISTORY = """
insert into agent.event_hist
( id, event_ts, attempts, vt, claimed, event, queue, target, head, fence, hops, created_at
, updated_at, outcome )
select -n, now() - n * interval '1 minute' - interval '1 hour', 1, now(), '{}', '{}', 'inbox', ''
     , true, 0, 0, now(), now()
     , case when n % 100 = 0 then 'dead' else 'completed' end
from generate_series(1, 12000) as n
"""


@pytest.fixture
def owned(databases: Databases) -> Iterator[str]:
    """A database on a server with TimescaleDB; its owner has no other privileges."""
    with available("timescale", databases.empty("timescale")) as url:
        name, role = (
            psycopg.conninfo.conninfo_to_dict(url)["dbname"],
            f"owner_{secrets.token_hex(4)}",
        )
        names = {"name": sql.Identifier(str(name)), "role": sql.Identifier(role)}
        with psycopg.connect(databases.server("timescale"), autocommit=True) as admin:
            admin.execute(sql.SQL("create role {role} login").format(**names))
            admin.execute(sql.SQL("alter database {name} owner to {role}").format(**names))
            yield as_role(url, role)
            admin.execute(sql.SQL("alter database {name} owner to current_user").format(**names))
        with psycopg.connect(url, autocommit=True) as session:
            session.execute(sql.SQL("drop owned by {role} cascade").format(**names))
            session.execute(sql.SQL("drop role {role}").format(**names))


@pytest.fixture
def plain(owned: str) -> str:
    """The same database, migrated while its owner could not create extensions."""
    with psycopg.connect(owned, autocommit=True) as session:
        name = sql.Identifier(session.info.dbname)
        session.execute("create schema agent")
        session.execute(sql.SQL("revoke create on database {} from current_user").format(name))
        report = migrate(owned)
        session.execute(sql.SQL("grant create on database {} to current_user").format(name))
    assert any("may not create the extension" in warning for warning in report.warnings)
    assert not is_hypertable(owned)
    return owned


def is_hypertable(url: str) -> bool:
    with psycopg.connect(url) as session:
        return session.execute("select agent.history_is_hypertable()").fetchone() == (True,)


def test_an_ordinary_owner_gets_a_hypertable(owned: str) -> None:
    report = migrate(owned)
    assert report.warnings == ()
    assert is_hypertable(owned)
    assert "history is a hypertable" in _timescale(facts(owned)).detail


def test_warnings_of_scripts_reach_the_user(scripts: Scripts, postgres: str) -> None:
    scripts.incremental(
        "001-second.sql", "do $$ begin raise warning 'mind the gap'; raise notice 'noise'; end $$;"
    )
    assert scripts.migrate(postgres).warnings == ("mind the gap",)


@contextmanager
def working(url: str) -> Iterator[list[int]]:
    """Run a worker that puts and completes one event after the other."""
    done: list[int] = []
    stop = threading.Event()

    def work() -> None:
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("set lock_timeout = '5s'")
            while not stop.is_set():
                row = session.execute("select agent.put_one('{}')").fetchone()
                session.execute("select agent.delete_event(%s)", row)
                done.append(1)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield done
    finally:
        stop.set()
        worker.join()


def test_a_plain_history_becomes_a_hypertable_while_workers_go_on(plain: str) -> None:
    assert "could be used: run holdfast migrate --timescale" in _timescale(facts(plain)).detail
    steps: list[str] = []
    with psycopg.connect(plain, autocommit=True) as session, working(plain) as done:
        session.execute(HISTORY)

        def check_dead_letters(step: str) -> None:
            steps.append(step)
            dead = session.execute(
                "select count(*) from agent.event_hist where outcome = 'dead'"
            ).fetchone()
            assert dead == (120,), "dead letters stay visible all the time"

        before = len(done)
        assert use_timescale(plain, check_dead_letters)
        assert len(done) > before
    assert is_hypertable(plain)
    with psycopg.connect(plain) as session:
        assert session.execute("select count(*) from agent.event_hist where id < 0").fetchone() == (
            12_000,
        )
        assert session.execute("select count(*) from agent.event_hist where id > 0").fetchone() == (
            len(done),
        )
        assert session.execute("select to_regclass('agent.event_hist_moved')").fetchone() == (None,)
    assert any("aside" in step for step in steps)
    assert not use_timescale(plain, check_dead_letters)


def test_issue_14_1_the_command_makes_a_plain_history_a_hypertable(
    plain: str, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, plain)
    assert "run holdfast migrate --timescale" in shell.run("doctor").stdout
    done = shell.run("migrate", "--timescale")
    assert (done.returncode, done.stderr) == (0, "")
    assert is_hypertable(plain)
    assert "history is a hypertable" in shell.run("doctor").stdout
    assert shell.run("migrate", "--timescale").returncode == 0


def test_an_aborted_conversion_to_a_hypertable_is_finished_by_the_next_run(plain: str) -> None:
    with psycopg.connect(plain, autocommit=True) as session:
        session.execute(HISTORY)

    def stop(step: str) -> None:
        if "back" in step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use_timescale(plain, stop)
    assert use_timescale(plain, lambda step: None)
    with psycopg.connect(plain) as session:
        assert session.execute("select count(*) from agent.event_hist").fetchone() == (12_000,)
