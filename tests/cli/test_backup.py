"""`holdfast backup`: a complete copy of a database that is in use."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from tests.cli.shell import Shell

MESSAGES = 12


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_backup_of_a_busy_database_has_all_that_was_acknowledged_before(
    shell: Shell, tmp_path: Path
) -> None:
    home, copy, gone = tmp_path / ".holdfast", tmp_path / "copy.db", threading.Event()
    with shell.running("work"):
        for number in range(MESSAGES):
            shell.out("send", f"message {number}")

        def keep_busy() -> None:
            while not gone.is_set():
                shell.run("send", "meanwhile")

        busy = threading.Thread(target=keep_busy)
        busy.start()
        try:
            assert shell.out("backup", str(copy)).startswith(f"wrote {copy}, ")
        finally:
            gone.set()
            busy.join()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")]
    shutil.rmtree(home)
    home.mkdir(mode=0o700)
    shutil.copy(copy, home / "holdfast.db")
    with shell.running("work"):
        text = shell.out("history", "--limit", "1000") + shell.out("status", "--json")
    assert {number for number in range(MESSAGES) if f"message {number}" not in text} == set()


def test_a_backup_overwrites_a_file_only_with_force(shell: Shell, tmp_path: Path) -> None:
    shell.out("migrate")
    there = shell.write("there.db", "mine")
    assert shell.refused("backup", str(there)).endswith(
        "there.db is there already: --force writes over it"
    )
    assert there.read_text() == "mine"
    shell.out("backup", str(there), "--force")
    assert there.read_bytes().startswith(b"SQLite format 3")


@pytest.mark.sweep(2)
@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_a_backup_onto_the_database_itself_is_refused(shell: Shell, end: str) -> None:
    home = shell.folder / ".holdfast"
    with shell.running("work"):
        shell.out("send", "keep me", "--wait")
        (shell.folder / "link").symlink_to(home)
        for folder in (home, shell.folder / "link"):
            target = folder / f"holdfast.db{end}"
            refusal = shell.refused("backup", str(target), "--force")
            assert refusal.endswith(
                "holdfast.db" + end + " is the database in use: name another file"
            )
        assert "keep me" in shell.out("history")


def test_a_backup_that_fails_is_one_line(shell: Shell, tmp_path: Path) -> None:
    assert "there is no database" in shell.refused("backup", "copy.db")
    shell.out("migrate")
    assert "cannot be written: No such file or directory" in shell.refused(
        "backup", "nowhere/copy.db"
    )
    (tmp_path / ".holdfast" / "holdfast.db").write_bytes(b"not a database at all" * 1000)
    assert "file is not a database" in shell.refused("backup", "copy.db")
    assert not (tmp_path / "copy.db").exists()
    postgres = shell.refused("backup", "copy.db", "--database", "postgresql://u:secret@127.0.0.1/x")
    assert postgres.endswith("back it up with pg_dump --format=custom --schema=agent")
