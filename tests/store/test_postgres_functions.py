"""Functions of schema agent: their grants, their pinned settings, and how they read payloads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast.migrations.runner import SCRIPTS, migrate

SCRIPTS_OF_FUNCTIONS = sorted((SCRIPTS / "idempotent").glob("*.sql"))

# Release 0.4.0 and this one have agent.claim with seven parameters, early builds of 0.5.0 eight.
CLAIM_OF_FIRST_BUILDS = """
drop function agent.claim(text, text[], int4, interval, text, int4, int4);
create function agent.claim
( _queue text, _targets text[], _limit int4, _lease interval, _holder text default null
, _collect_limit int4 default 1, _max_attempts int4 default 3, _at_most int4[] default null
) returns setof agent.event
language sql as 'select * from agent.event'
"""
OIDS = "select oid::regprocedure::text, oid from pg_proc where pronamespace = 'agent'::regnamespace"
CALLS_OF_0_4_0 = (
    "select id from agent.claim('inbox', array[''], 1, '10m', null, 1, 3)",
    "select agent.settle('[]')",
    "select agent.register_process('old', 'localhost', now())",
    "select agent.say('dev', 'coder', 'hello')",
    "select agent.beat('old', 'due', 0)",
    "select agent.put_one('{}')",
    "select agent.retry_events(array[0::int8])",
    "select agent.retry_event(0)",
)


def migrate_again(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("update agent.version set version = '0.4.0'")
    migrate(url)


@contextmanager
def role(connection: psycopg.Connection[tuple[object, ...]]) -> Iterator[str]:
    name = f"worker_{uuid4().hex}"
    connection.execute(f"create role {name}")
    try:
        yield name
    finally:
        connection.execute(f"drop owned by {name}")
        connection.execute(f"drop role {name}")


@pytest.mark.parametrize("name", ["claim", "counts", "found_by_meaning", "settle"])
def test_grants_of_functions_survive_a_migration(postgres_url: str, name: str) -> None:
    allowed = f"""select bool_and(has_function_privilege(%s, oid, 'execute')) from pg_proc
                  where pronamespace = 'agent'::regnamespace and proname = '{name}'"""
    with psycopg.connect(postgres_url, autocommit=True) as connection, role(connection) as worker:
        if connection.execute(allowed, [worker]).fetchone() == (None,):
            pytest.skip("this server has no pgvector")
        connection.execute(f"revoke all on function agent.{name} from public")
        connection.execute(f"grant execute on function agent.{name} to {worker}")
        migrate_again(postgres_url)
        assert connection.execute(allowed, [worker]).fetchone() == (True,)
        assert connection.execute(allowed, ["pg_monitor"]).fetchone() == (False,)
        assert connection.execute(
            f"select count(*) from pg_proc where proname = '{name}'"
            " and pronamespace = 'agent'::regnamespace"
        ).fetchone() == (1,)


VIEW_OF_0_6_0 = """
drop view agent.agent_messages;
create view agent.agent_messages as
select id, agent_id, role, channel, sender, message_id, content, created_at
from agent.agent_message;
create view public.lines_of_a_user as select agent_id, message_id from agent.agent_messages"""
VIEW_OF_0_7_0 = """
drop view agent.agent_messages;
create view agent.agent_messages as
select id, agent_id, role, channel, sender, message_id, content, created_at
from agent.agent_message
union all
select id, agent_id, role, channel, sender, message_id, content, created_at
from agent.message_line where is_live;
create view public.lines_of_a_user as select agent_id, message_id from agent.agent_messages"""


@pytest.mark.parametrize("view", [VIEW_OF_0_6_0, VIEW_OF_0_7_0], ids=["0.6.0", "0.7.0"])
def test_the_view_of_lines_of_an_earlier_release_is_replaced_below_a_view_of_a_user(
    postgres_url: str, view: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(view.encode())
        migrate_again(postgres_url)
        connection.execute("select agent.put_one('{}', _target => 'coder', _message_id => 'm1')")
        lines = connection.execute("select agent_id, message_id from lines_of_a_user").fetchall()
        assert lines == [("coder", "m1")]


@pytest.mark.parametrize("builds", ["release", "first builds"])
def test_no_function_is_dropped_while_workers_call_it(postgres_url: str, builds: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        if builds == "first builds":
            connection.execute(CLAIM_OF_FIRST_BUILDS)
        before: dict[str, int] = dict(connection.execute(OIDS).fetchall())
        migrate_again(postgres_url)
        after: dict[str, int] = dict(connection.execute(OIDS).fetchall())
        assert after == before
        assert (
            connection.execute("select agent.claim('inbox', array[''], 1, '1m')").fetchall() == []
        )


def test_calls_of_earlier_releases_work_while_this_one_migrates(postgres_url: str) -> None:
    done, errors, calls = Event(), list[psycopg.Error](), Counter[str]()

    def call() -> None:
        with psycopg.connect(postgres_url, autocommit=True, prepare_threshold=2) as connection:
            while not done.is_set() and not errors:
                for statement in CALLS_OF_0_4_0:
                    try:
                        connection.execute(statement.encode())
                    except psycopg.Error as error:
                        errors.append(error)
                    calls[statement] += 1

    with ThreadPoolExecutor(2) as pool:
        callers = [pool.submit(call) for _ in range(2)]
        try:
            for _ in range(3):
                migrate_again(postgres_url)
        finally:
            done.set()
        for caller in callers:
            caller.result()
    assert errors == []
    assert min(calls[statement] for statement in CALLS_OF_0_4_0) > 3


def test_a_role_that_works_events_may_keep_journals(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection, role(connection) as worker:
        connection.execute(f"grant select, insert, update, delete on agent.event to {worker}")
        migrate_again(postgres_url)
        rights = "select has_table_privilege(%s, %s, 'select, insert, update, delete')"
        for table in ("step", "journal", "journal_text", "signal"):
            assert connection.execute(rights, [worker, f"agent.{table}"]).fetchone() == (True,)
            assert connection.execute(rights, ["pg_monitor", f"agent.{table}"]).fetchone() == (
                False,
            )
        for table in ("step", "signal"):
            usage = f"select has_sequence_privilege(%s, 'agent.{table}_id_seq', 'usage')"
            assert connection.execute(usage.encode(), [worker]).fetchone() == (True,)


def test_functions_are_pinned_after_every_migration(postgres_url: str) -> None:
    pins = """select proname, proconfig from pg_proc
              where pronamespace = 'agent'::regnamespace order by oid::regprocedure::text"""
    with psycopg.connect(postgres_url) as connection:
        before = connection.execute(pins).fetchall()
    migrate_again(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        after = connection.execute(pins).fetchall()
    assert before == after
    assert all("search_path=pg_catalog, pg_temp" in settings for _, settings in after)
    [claim] = [settings for name, settings in after if name == "claim_turns"]
    assert "plan_cache_mode=force_generic_plan" in claim


def test_every_pinned_function_exists(postgres_url: str) -> None:
    script = SCRIPTS_OF_FUNCTIONS[-1].read_text()
    names = {name for names in re.findall(r"array\[(.*?)\]", script, re.DOTALL)
             for name in re.findall(r"'(\w+)'", names)}  # fmt: skip
    with psycopg.connect(postgres_url) as connection:
        known = connection.execute(
            "select proname from pg_proc where pronamespace = 'agent'::regnamespace"
        ).fetchall()
    assert len(names) > 20
    assert names <= {name for (name,) in known}


@pytest.mark.parametrize("path", SCRIPTS_OF_FUNCTIONS[:-1], ids=lambda path: path.name)
def test_settings_are_pinned_in_the_last_script_alone(path: Path) -> None:
    assert not re.findall(r"^set \w+ = ", path.read_text(), re.MULTILINE)


def test_only_one_script_knows_how_payloads_differ() -> None:
    """`kind` and Slack's keys are read by agent.read_message and what stands beside it."""
    readers = {path.name for path in SCRIPTS_OF_FUNCTIONS if "? 'kind'" in path.read_text()}
    assert readers == {"002-message.sql"}
    texts = "".join(path.read_text() for path in SCRIPTS_OF_FUNCTIONS)
    assert texts.count("'messageId', ") == 1  # one function builds frames about messages
    assert texts.count("'no attempts left'") == 1
    assert texts.count("['dead', 'expired', 'cancelled']") == 1
    assert not re.search(r"in \('dead', 'expired'", texts)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (
            {"type": "app_mention", "team": "T", "channel": "C", "user": "U", "text": "hi",
             "ts": "1.0"},
            ("slack", "U", "U", "hi", "T", "slack:T:C:1.0", "T:USER:slack:id:U"),
        ),
        (
            {"channel": "C", "user": " ", "ts": "2.0", "thread_ts": "1.0"},
            ("slack", " ", " ", None, None, "slack:C:1.0", ""),
        ),
        (
            {"kind": "message", "channel": "a:b", "sender": "Ann", "message": "hi",
             "conversation": "a:b:1"},
            ("a:b", "Ann", None, "hi", None, "a:b:1", "default:USER:a_b:name:Ann"),
        ),
        ({}, ("slack", None, None, None, None, "slack", "")),
    ],
)  # fmt: skip
def test_a_payload_is_read_as_slacks_or_as_ours(
    postgres_url: str, payload: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    with psycopg.connect(postgres_url) as connection:
        read = connection.execute("select (agent.read_message(%s)).*", [Jsonb(payload)]).fetchone()
    assert read == expected


def test_dead_letters_are_found_by_their_index(postgres_url: str) -> None:
    """The planner sees the constant behind agent.dead_outcomes()."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute("select agent.delete_event(agent.insert_event('{}'))")
        connection.execute("set enable_seqscan = off")
        plan = connection.execute(
            "explain select * from agent.event_hist where queue = 'inbox' and id > 5"
            " and outcome = any (agent.dead_outcomes())"
        ).fetchall()
    assert "event_hist_d" in str(plan)
    assert "dead_outcomes" not in str(plan)
