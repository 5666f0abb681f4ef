"""`holdfast migrate` and `holdfast up` on the command line: exit codes, one line per error."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from holdfast import __version__
from holdfast.migrations.runner import migrate
from tests.cli.shell import Shell
from tests.migrations.conftest import ask, tables


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_version_is_printed(shell: Shell) -> None:
    done = shell.run("--version")
    assert (done.returncode, done.stdout) == (0, f"holdfast {__version__}\n")


def test_migrate_prints_each_script_and_the_version(shell: Shell, empty_url: str) -> None:
    done = shell.run("migrate", "--database", empty_url)
    recorded = [
        name
        for (name,) in ask(empty_url, "select file_name from agent.migration order by file_name")
    ]
    printed = [
        line.split("/")[-1] for line in done.stdout.splitlines() if line.startswith("applied ")
    ]
    assert (done.returncode, done.stderr) == (0, "")
    assert printed[: len(recorded)] == recorded
    assert f"version {__version__}" in done.stdout.splitlines()[-1]


def test_migrate_of_a_current_database_says_that_there_is_nothing_to_do(
    shell: Shell, empty_url: str
) -> None:
    migrate(empty_url)
    done = shell.run("migrate", "--database", empty_url)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert "nothing to do" in done.stdout


def test_a_dry_run_prints_and_changes_nothing(shell: Shell, empty_url: str) -> None:
    done = shell.run("migrate", "--database", empty_url, "--dry-run")
    assert done.returncode == 0
    assert done.stdout.startswith("would apply ")
    assert tables(empty_url) == set()


def test_json_holds_the_report(shell: Shell, empty_url: str) -> None:
    report = json.loads(shell.run("migrate", "--database", empty_url, "--json").stdout)
    assert (report["found"], report["version"], report["dry_run"]) == (None, __version__, False)
    assert report["incremental"]


def test_a_newer_database_is_exit_1_and_one_line(shell: Shell, empty_url: str) -> None:
    migrate(empty_url, version="99.0")
    before = tables(empty_url)
    assert "99.0" in shell.refused("migrate", "--database", empty_url)
    assert tables(empty_url) == before
    assert ask(empty_url, "select version from agent.version") == [("99.0",)]


def test_a_schema_of_another_owner_is_exit_1_and_one_line(shell: Shell, postgres: str) -> None:
    ask(postgres, "create role landlord")
    try:
        ask(postgres, "create schema agent authorization landlord")
        assert 'belongs to "landlord"' in shell.refused("migrate", "--database", postgres)
        assert tables(postgres) == {"agent"}
    finally:
        ask(postgres, "drop owned by landlord cascade; drop role landlord")


@pytest.mark.parametrize("command", ["migrate", "up"])
def test_an_unreachable_server_is_exit_1_and_one_line(shell: Shell, command: str) -> None:
    line = shell.refused(command, "--database", "postgresql://u:secret@127.0.0.1:1/d")
    assert "cannot be reached" in line
    assert "secret" not in line


def test_a_wrong_url_is_exit_1_and_says_what_is_allowed(shell: Shell) -> None:
    line = shell.refused("migrate", "--database", "mysql://u:secret@h/d")
    assert "sqlite:///" in line
    assert "postgresql://" in line
    assert "secret" not in line


@pytest.mark.parametrize(
    "arguments", [["migrate", "--nope"], ["nope"], ["migrate", "extra"], ["migrate", "--home"]]
)
def test_wrong_usage_is_exit_2_and_one_line(shell: Shell, arguments: list[str]) -> None:
    assert "--help" in shell.refused(*arguments, code=2)


def test_a_missing_configuration_file_is_exit_1_and_names_it(shell: Shell) -> None:
    assert "nowhere.toml" in shell.refused("migrate", "--config", "nowhere.toml")


def test_the_default_database_is_a_file_in_the_home_folder(shell: Shell) -> None:
    assert shell.run("migrate").returncode == 0
    assert (shell.folder / ".holdfast" / "holdfast.db").exists()
    assert shell.run("migrate", HOLDFAST_HOME=str(shell.folder / "other")).returncode == 0
    assert (shell.folder / "other" / "holdfast.db").exists()


def test_up_migrates_says_ready_and_stops_on_a_signal(shell: Shell) -> None:
    shell.cold = True
    for number in (signal.SIGTERM, signal.SIGINT):
        with shell.running("up", "--port", "0") as up:
            assert "ready" in up.ready
            up.signal(number)
            assert up.end() == 0
    assert "event" in tables(f"sqlite:///{shell.folder}/.holdfast/holdfast.db")
