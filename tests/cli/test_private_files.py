"""Files of Holdfast are private under any umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.migrations.runner import migrate
from tests.cli.shell import Shell


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_mode & 0o777
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("command", ["up --port 0", "work"])
def test_home_database_and_lock_files_are_private_under_any_umask(
    tmp_path: Path, command: str
) -> None:
    shell = Shell(tmp_path, cold=True)
    home = tmp_path / ".holdfast"
    with shell.running(*command.split()) as running:
        shell.out("send", "hello", "--wait")
        found = modes(home)
        assert {"holdfast.db", "holdfast.db-wal", "holdfast.db-shm", "holdfast.db.lock"} <= set(
            found
        )
        assert home.stat().st_mode & 0o777 == 0o700
        assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}
        assert "other users can" not in running.log


@pytest.mark.usefixtures("open_umask")
def test_a_database_that_is_migrated_from_code_is_private(tmp_path: Path) -> None:
    migrate(f"sqlite:///{tmp_path / 'plain.db'}")
    assert {name: oct(mode) for name, mode in modes(tmp_path).items() if mode & 0o077} == {}


@pytest.mark.parametrize("opened", [".", "token-admin", "holdfast.db"])
def test_a_start_and_doctor_warn_of_files_that_other_users_can_open(
    tmp_path: Path, opened: str
) -> None:
    shell = Shell(tmp_path)
    home = tmp_path / ".holdfast"
    with shell.running("up", "--port", "0"):
        pass
    assert "home: " in shell.run("doctor").stdout
    assert "other users can open" not in shell.run("doctor").stdout
    (home / opened).chmod(0o755)
    with shell.running("up", "--port", "0") as running:
        assert f"other users can open {home / opened}" in running.log
    assert f"warn  home: other users can open {home / opened}" in shell.run("doctor").stdout
