"""`holdfast import tiger` takes over live events and history, also in the same database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.errors import HoldfastError, MigrationError
from holdfast.migrations.runner import migrate
from holdfast.queue.event import NewEvent
from holdfast.store.transfer import tiger
from holdfast.testing.databases import Databases
from tests.cli.shell import Shell
from tests.transfer.conftest import NewDatabase
from tests.transfer.originals import make_tiger, mention

ENGINES = ("postgres", "timescale")
LEFT = {
    "admin_audits": 3,
    "admin_users": 1,
    "customer_channel_salesforce_link": 1,
    "ignored_users": 2,
    "salesforce_case_thread": 1,
    "user_defined_rules": 1,
}
"""Rows of tables that have no counterpart."""


def ask(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture(params=ENGINES)
def tiger_url(request: pytest.FixtureRequest, new_database: NewDatabase) -> str:
    """A database with the schema of a Tiger Agent, its history a hypertable on TimescaleDB."""
    url = new_database(request.param)
    make_tiger(url, timescale=request.param == "timescale")
    return url


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_schema_in_the_same_database_is_renamed_aside(tiger_url: str, shell: Shell) -> None:
    before = ask(tiger_url, "select id, attempts, claimed, event from agent.event order by id")
    report = shell.json("import", "tiger", "--from", tiger_url, "--database", tiger_url)
    assert report["imported"] == {"completed": 3, "dead": 2, "live": 6}
    assert report["kept"] == "tiger_agent"
    assert report["left"] == LEFT
    kept = ask(tiger_url, "select id, attempts, claimed, event from tiger_agent.event order by id")
    assert kept == before
    assert len(ask(tiger_url, "select id from tiger_agent.event_hist")) == 4
    assert not migrate(tiger_url, dry_run=True).due
    assert ask(tiger_url, "select nextval('agent.event_id_seq') > 17") == [(True,)]


def test_live_events_keep_ids_attempts_and_order(tiger_url: str, shell: Shell) -> None:
    shell.out("import", "tiger", "--from", tiger_url, "--database", tiger_url)
    live = ask(
        tiger_url,
        "select id, attempts, cardinality(claimed), message_id, lane, head, vt <= now()"
        " from agent.event order by id",
    )
    lane = "/slack:T1:C1:1790000011.000100"
    assert live == [
        (11, 0, 0, "slack_T1_C1_1790000011.000100", lane, True, True),
        (12, 1, 1, "slack_T1_C1_1790000012.000100", lane, False, True),
        (13, 2, 1, "slack_T1_C1_1790000013.000100", "/slack:T1:C1:1790000013.000100", True, False),
        (14, 0, 0, "tiger_14", lane, False, True),
        (15, 0, 0, "tiger_15", None, True, False),
        (17, 0, 0, "tiger_17", None, True, True),
    ]
    assert ask(tiger_url, f"select agent.insert_event('{json.dumps(mention(11))}')") == [(None,)]
    claimed = ask(tiger_url, "select id from agent.claim_turns('inbox', '{\"\"}', 9, '1m')")
    assert {id_ for (id_,) in claimed} == {11, 17}


def test_history_says_how_each_event_ended(tiger_url: str, shell: Shell) -> None:
    shell.out("import", "tiger", "--from", tiger_url, "--database", tiger_url)
    past = ask(
        tiger_url,
        "select id, attempts, outcome, extract(epoch from finished_at)::float8, last_error"
        " from agent.event_hist order by id",
    )
    assert past == [
        (1, 1, "completed", 1_790_000_021.25, None),
        (2, 2, "completed", 1_790_000_022.25, None),
        (3, 3, "completed", 1_790_000_023.25, None),
        (4, 4, "dead", 1_790_000_024.25, tiger.NOT_PROCESSED),
        (16, 0, "dead", 1_790_000_016.0, tiger.NO_PAYLOAD),
    ]
    listed = shell.json("dead", "list", "--database", tiger_url)
    assert [one["id"] for one in listed] == [16, 4]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_another_database_is_filled_and_the_source_stays(
    engine: str, tiger_url: str, new_database: NewDatabase, shell: Shell
) -> None:
    target = new_database(engine)
    first = shell.json("import", "tiger", "--from", tiger_url, "--database", target)
    assert first["imported"] == {"completed": 3, "dead": 2, "live": 6}
    again = shell.json("import", "tiger", "--from", tiger_url, "--database", target)
    assert (again["imported"], again["known"]) == ({}, 11)
    assert len(ask(tiger_url, "select id from agent.event")) == 7
    assert len(shell.json("history", "--database", target)) == 5


def test_an_early_schema_without_processed_is_imported(
    new_database: NewDatabase, shell: Shell
) -> None:
    url = new_database("postgres")
    make_tiger(url, early=True)
    report = shell.json("import", "tiger", "--from", url, "--database", url)
    assert report["imported"] == {"completed": 4, "dead": 1, "live": 6}


def test_a_dry_run_changes_nothing(tiger_url: str, shell: Shell) -> None:
    report = shell.json(
        "import", "tiger", "--from", tiger_url, "--database", tiger_url, "--dry-run"
    )
    assert report["dry_run"]
    assert report["imported"] == {"completed": 3, "dead": 2, "live": 6}
    assert ask(tiger_url, "select to_regnamespace('tiger_agent') is null") == [(True,)]
    assert len(ask(tiger_url, "select id from agent.event")) == 7


def test_a_failure_changes_nothing(
    tiger_url: str, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise HoldfastError("refused")

    monkeypatch.setattr(tiger, "_count_others", fail)
    other = new_database("postgres")
    for target in (tiger_url, other):
        with pytest.raises(HoldfastError, match="refused"):
            tiger.import_tiger(tiger_url, target, _unrouted)
    assert len(ask(tiger_url, "select id from agent.event")) == 7
    assert ask(tiger_url, "select to_regnamespace('tiger_agent') is null") == [(True,)]
    assert ask(other, "select to_regnamespace('agent') is null") == [(True,)]


def _unrouted(payload: dict[str, Any], agent: str | None) -> Any:
    return NewEvent(event=payload)


def test_migrate_and_doctor_name_the_import(tiger_url: str, shell: Shell) -> None:
    with pytest.raises(MigrationError, match="perhaps Tiger Agent; nothing was changed"):
        migrate(tiger_url)
    assert "holdfast import tiger" in shell.refused("migrate", "--database", tiger_url)
    assert "holdfast import tiger" in shell.refused("up", "--port", "0", "--database", tiger_url)
    findings = shell.run("doctor", "--database", tiger_url).stdout
    assert "holdfast import tiger" in findings


def test_what_is_no_tiger_agent_is_refused(databases: Databases, shell: Shell) -> None:
    with databases.empty("postgres") as empty, databases.fresh("postgres") as own:
        line = shell.refused("import", "tiger", "--from", empty, "--database", own)
        assert "there is no schema of Tiger Agent" in line
        line = shell.refused("import", "tiger", "--from", own, "--database", own)
        assert "Holdfast's own" in line
        line = shell.refused("import", "tiger", "--from", "sqlite:///x.db", "--database", own)
        assert "Tiger Agent lives in PostgreSQL" in line
