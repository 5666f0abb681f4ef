"""A move that is killed goes on where it was, however often and wherever it dies."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.store.transfer.move import move
from tests.cli.shell import ROOT, Shell
from tests.transfer.conftest import NewDatabase
from tests.transfer.filling import contents, triggers
from tests.transfer.filling import opened as opened_sqlite

DEATHS = (
    ("lock", "1"),
    ("copying event", "2"),
    ("copying step", "1"),
    ("verifying journal", "3"),
    ("mark_moved", "1"),
)


def die(source: str, target: str, step: str, count: str) -> None:
    command = [sys.executable, "-m", "tests.transfer.doomed_move", source, target, step, count]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("engine", ["postgres", "timescale"])
def test_a_move_killed_five_times_ends_with_equal_databases(
    engine: str, filled: str, new_database: NewDatabase, tmp_path: Path
) -> None:
    before = contents(filled)
    middle, back = new_database(engine), new_database("sqlite")
    for source, target in ((filled, middle), (middle, back)):
        for step, count in DEATHS:
            die(source, target, step, count)
        output = Shell(tmp_path).out("move", "--from", source, "--to", target)
        assert "continuing an earlier move" in output
    assert contents(back) == before
    with opened_sqlite(back) as found, opened_sqlite(filled) as expected:
        kept = [one for one in triggers(expected) if not one[0].startswith("refuse_")]
        assert triggers(found) == kept


def test_a_killed_move_between_files_goes_on(filled: str, new_database: NewDatabase) -> None:
    before, target = contents(filled), new_database("sqlite")
    for step, count in DEATHS:
        die(filled, target, step, count)
        if step == "copying step":
            assert move(filled, target, dry_run=True).rows
    assert move(filled, target).resumed
    assert contents(target) == before


def test_the_rest_of_a_move_that_was_given_up_is_removed(
    filled: str, new_database: NewDatabase, tmp_path: Path
) -> None:
    target, shell = new_database("postgres"), Shell(tmp_path)
    die(filled, target, "copying step", "1")
    urls = ("--from", filled, "--to", target)
    assert "given up" in shell.out("move", *urls, "--undo")
    with opened_sqlite(filled) as connection:
        connection.execute("delete from step")
    report = move(filled, target)
    assert not report.resumed
    assert {table.name: table.rows for table in report.tables}["step"] == 0
