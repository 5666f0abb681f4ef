"""A million messages move while their mover is killed three times."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.testing.databases import Databases
from holdfast.testing.fixtures import available
from tests.cli.shell import Shell
from tests.transfer.filling import opened

FINISHED, LIVE, LANES, LINES = 900_000, 100_000, 20_000, 200_000
MOVE_SECONDS = 1800

NUMBERS = (
    "with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {})"
)
EVENT = """json_object('kind', 'message', 'channel', 'api', 'sender', 'Ann', 'sender_id',
  'user' || (n % 1000), 'message', 'Frage ' || n || ' – grüße 🎉', 'conversation', 'api:' || n)"""
FILL = (
    f"""insert into event_hist (id, queue, target, lane, head, event_ts, attempts, vt, claimed,
      event, message_id, root_id, created_at, updated_at, outcome, finished_at)
    {NUMBERS.format(FINISHED)}
    select n, 'inbox', 'coder', 'coder/api:' || n, 1, 1790000000000000 + n, 1,
      1790000000000000 + n, '[' || (1790000000000000 + n) || ']', {EVENT}, 'api_' || n, n,
      1790000000000000 + n, 1790000000000000 + n, iif(n % 1000, 'completed', 'dead'),
      1790000000000000 + n from numbers""",
    f"""insert into event (id, queue, target, lane, head, event_ts, vt, event, message_id, root_id)
    {NUMBERS.format(LIVE)}
    select {FINISHED} + n, 'inbox', 'coder', 'coder/' || (n % {LANES}), n <= {LANES},
      1790000000000000 + n, 1790000000000000 + n, {EVENT}, 'api_' || ({FINISHED} + n),
      {FINISHED} + n from numbers""",
    f"""insert into message_key (queue, message_id, event_id, seen_at)
    {NUMBERS.format(FINISHED + LIVE)}
    select 'inbox', 'api_' || n, n, 1790000000000000 + n from numbers""",
    f"""insert into agent_message (agent_id, role, channel, sender, message_id, content, created_at)
    {NUMBERS.format(LINES)}
    select 'coder', iif(n % 2, 'user', 'assistant'), 'api', 'Ann', 'api_' || n, 'Line ' || n,
      1790000000000000 + n from numbers""",
)


def fill(url: str) -> None:
    """Create a million messages in about half a minute, in SQL alone."""
    with opened(url) as connection:
        connection.execute("pragma synchronous = off")
        for statement in FILL:
            connection.execute(statement)


@pytest.mark.chaos
def test_a_million_messages_move_though_the_move_is_killed_three_times(
    databases: Databases, tmp_path: Path
) -> None:
    shell = Shell(tmp_path)
    with (
        databases.fresh("sqlite") as source,
        available("postgres", databases.empty("postgres")) as target,
    ):
        fill(source)
        began_at = time.monotonic()
        for has_come_far in (
            lambda cursors: cursors.get("event_hist", [0])[0] > FINISHED // 4,
            lambda cursors: cursors.get("event_hist", [0])[0] > FINISHED // 2,
            lambda cursors: "setting" in cursors,
        ):
            _kill_when(shell, source, target, has_come_far)
        report = _finish(shell, source, target)
        seconds = time.monotonic() - began_at
        print(f"\n{report['rows']} rows in {seconds:.0f} s, three times killed")
        assert report["resumed"]
        rows = {table["name"]: table["rows"] for table in report["tables"]}
        assert rows["event_hist"] == FINISHED
        assert rows["event"] == LIVE
        assert rows["message_key"] == FINISHED + LIVE
        with psycopg.connect(target) as connection:
            found = connection.execute(
                "select count(*), count(distinct lane), sum(head::int) from agent.event"
            ).fetchone()
        assert found == (LIVE, LANES, LANES)


def _start(shell: Shell, source: str, target: str, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast", "move", "--from", source, "--to", target, *more]
    output = subprocess.PIPE if more else subprocess.DEVNULL
    return subprocess.Popen(command, cwd=shell.folder, env=shell.environment, stdout=output)


def _kill_when(
    shell: Shell, source: str, target: str, has_come_far: Callable[[dict[str, Any]], bool]
) -> None:
    process = _start(shell, source, target)
    give_up_at = time.monotonic() + MOVE_SECONDS
    while not has_come_far(_cursors(target)):
        assert process.poll() is None, "the move ended before it was killed"
        assert time.monotonic() < give_up_at
        time.sleep(0.1)
    process.kill()
    assert process.wait() == -signal.SIGKILL


def _cursors(target: str) -> dict[str, Any]:
    with psycopg.connect(target, autocommit=True) as connection:
        [is_there] = connection.execute(
            "select to_regclass('agent.setting') is not null"
        ).fetchone() or [False]
        row = (
            is_there
            and connection.execute(
                "select value -> 'cursors' from agent.setting where key = 'move/target'"
            ).fetchone()
        )
    return row[0] if row else {}


def _finish(shell: Shell, source: str, target: str) -> Any:
    process = _start(shell, source, target, "--json")
    output, _ = process.communicate(timeout=MOVE_SECONDS)
    assert process.returncode == 0
    return json.loads(output)
