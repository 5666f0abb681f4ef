"""Test servers start on demand, keep tests apart, and leave nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from holdfast.testing import servers
from holdfast.testing.databases import Databases

STARTER = """
import time
from holdfast.testing import servers
with servers.postgres(servers.wheel_binaries()) as url:
    print(url, flush=True)
    time.sleep(600)
"""


def test_databases_of_two_tests_share_nothing(databases: Databases) -> None:
    with databases.empty("postgres") as one, databases.empty("postgres") as two:
        with psycopg.connect(one) as connection:
            connection.execute("create table mark (id int)")
        with psycopg.connect(two) as connection:
            assert connection.execute("select to_regclass('mark')").fetchone() == (None,)


def test_a_database_is_gone_after_its_test(databases: Databases) -> None:
    with databases.empty("postgres") as url:
        left_open = psycopg.connect(url)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)
    left_open.close()


def test_a_durable_server_keeps_what_it_commits() -> None:
    with (
        servers.postgres(servers.wheel_binaries(), durable=True) as url,
        psycopg.connect(url) as connection,
    ):
        assert connection.execute("show fsync").fetchone() == ("on",)
        assert connection.execute("show synchronous_commit").fetchone() == ("on",)


def test_a_server_ends_with_the_process_that_started_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        url = starter.stdout.readline().strip()
        with psycopg.connect(url) as connection:
            row = connection.execute("select current_setting('data_directory')").fetchone()
        os.kill(starter.pid, signal.SIGKILL)
    assert row is not None
    give_up_at = time.monotonic() + 30
    while Path(row[0]).parent.exists():
        assert time.monotonic() < give_up_at, "the server's folder is still there"
        time.sleep(0.02)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    binaries = tmp_path / "server" / "bin"
    binaries.mkdir(parents=True)
    for name, script in {"postgres": "exit 0", "initdb": "echo no room >&2; exit 1"}.items():
        (binaries / name).write_text(f"#!/bin/sh\n{script}\n")
        (binaries / name).chmod(0o755)
    with pytest.raises(servers.Unavailable, match="no room"), servers.postgres(binaries):
        pass


def test_a_version_that_is_not_installed_is_unavailable() -> None:
    with pytest.raises(servers.Unavailable, match="PostgreSQL 9 is not installed"):
        servers.system_binaries(9)
