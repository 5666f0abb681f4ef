"""`holdfast doctor`: one line per check, exit code 1 if one fails."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import psycopg
import pytest

from holdfast import __version__
from holdfast.channels.watermark import Watermarks
from holdfast.migrations.runner import migrate
from holdfast.store import open_store
from holdfast.testing.servers import url_of
from tests.cli.shell import Shell

THREE = """
from holdfast import AgentHarness

app = AgentHarness()
for id_ in ("one", "two", "three"):
    app.add(id_, lambda turn: None)
"""


def findings(shell: Shell, *arguments: str, **variables: str) -> dict[str, tuple[str, str]]:
    done = shell.run("doctor", "--json", *arguments, **variables)
    found = {
        finding["name"]: (finding["state"], finding["detail"])
        for finding in json.loads(done.stdout)
    }
    assert done.returncode == any(state == "fail" for state, _ in found.values()), done
    return found


def test_a_good_database_gets_only_good_lines(shell: Shell) -> None:
    lines = shell.out("doctor").splitlines()
    assert f"ok    program: holdfast {__version__}" in lines
    assert f"ok    schema: version {__version__}" in lines
    assert [line for line in lines if not line.startswith("ok ")] == []


def test_postgresql_is_checked_for_clock_connections_extensions_and_direct_session(
    postgres: str, alone: Shell
) -> None:
    found = findings(alone, "--database", postgres)
    assert found["database"][1].startswith("PostgreSQL ")
    for name in ("TimescaleDB", "pgvector", "clock", "connections", "direct session"):
        assert found[name][0] == "ok"


def test_without_pgvector_doctor_says_that_memory_searches_by_words_alone(
    postgres: str, alone: Shell
) -> None:
    state, detail = findings(alone, "--database", postgres)["pgvector"]
    assert (state, detail.startswith("version ")) == ("ok", True)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("drop extension vector cascade")
    state, detail = findings(alone, "--database", postgres)["pgvector"]
    assert state == "warn"
    assert "words alone" in detail
    assert "enable_vectors" in detail


def test_a_database_out_of_reach_fails_without_its_password(alone: Shell) -> None:
    state, detail = findings(alone, "--database", "postgresql://u:secret@127.0.0.1:1/d")["database"]
    assert state == "fail"
    assert "secret" not in detail


def test_a_missing_schema_is_a_warning_and_a_newer_one_a_failure(alone: Shell) -> None:
    assert findings(alone)["schema"][0] == "warn"
    assert not (alone.folder / ".holdfast").exists()
    migrate(f"sqlite:///{alone.folder}/newer.db", version="99.0")
    assert findings(alone, "--database", "sqlite:///newer.db")["schema"][0] == "fail"


def test_more_connections_than_the_server_allows_fail(postgres: str, alone: Shell) -> None:
    state, detail = findings(alone, "--database", postgres, HOLDFAST_CONNECTIONS="1000")[
        "connections"
    ]
    assert state == "fail"
    assert "max_connections" in detail


def test_the_agents_of_the_app_count_for_the_connections(postgres: str, alone: Shell) -> None:
    where = ("--database", postgres)
    alone.write("holdfast.toml", "".join(f"[agents.a{n}]\nkind = 'echo'\n" for n in range(3)))
    configured = findings(alone, *where, HOLDFAST_WORKERS="2")["connections"][1]
    alone.write("holdfast.toml", "")
    alone.write("three.py", THREE)
    in_code = findings(alone, *where, "--app", "three:app", HOLDFAST_WORKERS="2")["connections"][1]
    assert in_code.partition(",")[0] == configured.partition(",")[0]


def test_a_direct_session_to_another_database_fails(postgres: str, alone: Shell) -> None:
    other = url_of(postgres, "postgres")
    found = findings(alone, "--database", postgres, HOLDFAST_DATABASE_DIRECT=other)
    assert found["direct session"][0] == "fail"
    unreachable = findings(
        alone, "--database", postgres, HOLDFAST_DATABASE_DIRECT="postgresql://127.0.0.1:1/nothing"
    )
    assert "cannot be reached" in unreachable["direct session"][1]


def test_a_home_that_other_users_can_open_is_a_warning(alone: Shell) -> None:
    home = alone.folder / "home"
    home.mkdir(mode=0o755)
    state, detail = findings(alone, "--home", str(home))["home"]
    assert state == "warn"
    assert "chmod" in detail
    home.chmod(0o700)
    assert findings(alone, "--home", str(home))["home"][0] == "ok"


def test_an_app_that_cannot_be_loaded_fails(alone: Shell) -> None:
    assert findings(alone, "--app", "nowhere:app")["app"][0] == "fail"
    alone.write("bare.py", "from holdfast import AgentHarness\napp = AgentHarness()\n")
    assert findings(alone, "--app", "bare:app")["app"][0] == "warn"


def test_agents_of_holdfast_toml_are_checked(alone: Shell) -> None:
    alone.write("holdfast.toml", "[agents.parrot]\nkind = 'echo'\n")
    assert findings(alone)["app"] == ("ok", "agents parrot")
    alone.write("holdfast.toml", "[agents.coder]\nkind = 'command'\ncommand = ['nosuch']\n")
    state, detail = findings(alone)["app"]
    assert (state, detail.split(": there")[0]) == ("fail", "holdfast.toml:3: agents.coder.command")


def test_nothing_stays_locked_or_connected(postgres: str, alone: Shell) -> None:
    findings(alone, "--database", postgres)
    with psycopg.connect(postgres) as connection:
        row = connection.execute(
            "select count(*) from pg_locks where locktype = 'advisory'"
        ).fetchone()
    assert row == pytest.approx((0,))


def test_tokens_are_checked_and_never_shown(alone: Shell) -> None:
    assert findings(alone)["tokens"] == ("ok", "no Slack token is set")
    nobody = {"SLACK_API_URL": "http://127.0.0.1:1/"}
    good = {"SLACK_BOT_TOKEN": "xoxb-hunter2", "SLACK_SIGNING_SECRET": "hunter3"} | nobody
    found = findings(alone, **good)
    assert found["tokens"] == ("ok", "set: SLACK_BOT_TOKEN, SLACK_SIGNING_SECRET")
    assert found["Slack"] == ("fail", "Slack cannot be reached: ClientConnectorError")
    swapped = findings(alone, SLACK_APP_TOKEN="xoxb-hunter2")["tokens"]
    assert swapped == ("warn", "SLACK_APP_TOKEN should begin with xapp-")


async def test_the_last_gap_of_a_channel_is_shown_with_what_it_brought(
    shell: Shell, url: str
) -> None:
    assert "Matrix gap" not in findings(shell)
    async with open_store(url) as store:
        await Watermarks(store, "matrix").note_gap(3, datetime(2026, 1, 31, 12, tzinfo=UTC))
    state, detail = findings(shell)["Matrix gap"]
    assert state == "ok"
    assert detail.startswith("3 messages since 2026-01-31 12:00:00, closed ")
