"""`holdfast move` from a person's view: what it prints and refuses, also while processes run."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.shell import TIMEOUT, Shell, eventually
from tests.cli.terminal import at_terminal

APP = """
import asyncio
from pathlib import Path
from holdfast import AgentHarness

app = AgentHarness()

@app.agent("slow")
async def slow(turn):
    Path("started").touch()
    while not Path("may end").exists():
        await asyncio.sleep(0.02)
    return "done"
"""


def test_a_move_prints_a_table_and_the_app_goes_on_with_the_new_url(
    alone: Shell, postgres: str
) -> None:
    here = f"sqlite:///{alone.folder}/holdfast.db"
    alone.environment["HOLDFAST_DATABASE"] = here
    alone.out("migrate")
    sent = alone.out("send", "hello").strip()
    would = alone.json("move", "--from", here, "--to", postgres, "--dry-run")
    assert would["dry_run"]
    assert would["rows"] >= 2
    output = alone.out("move", "--from", here, "--to", postgres)
    assert "counts and hashes are equal" in output
    assert "message_key" in output
    refused = alone.refused("send", "late")
    assert refused.startswith("holdfast: this database was moved to postgresql://")
    refused = alone.refused("up", "--port", "0")
    assert refused.startswith("holdfast: this database was moved to postgresql://")
    alone.environment["HOLDFAST_DATABASE"] = postgres
    with alone.running("up", "--port", "0"):
        done = eventually(
            lambda: [
                one
                for one in alone.json("history", "--queue", "inbox")
                if one["message_id"] == sent and one["outcome"] == "completed"
            ]
        )
    assert len(done) == 1


def test_each_wrong_argument_is_one_clear_line(alone: Shell, postgres: str) -> None:
    here = f"sqlite:///{alone.folder}/holdfast.db"
    alone.out("migrate", "--database", here)

    def refused(source: str, target: str, *more: str, code: int = 1) -> str:
        return alone.refused("move", "--from", source, "--to", target, *more, code=code)

    assert "same database" in refused(here, here)
    assert "same database" in refused(postgres, postgres)
    assert "a database URL is sqlite:///" in refused(here, "mongodb://there")
    assert "there is no database" in refused("sqlite:///nowhere.db", here)
    assert "no unfinished move" in refused(here, postgres, "--undo")
    assert "cannot be combined" in refused(here, postgres, "--undo", "--dry-run", code=2)
    assert "cannot be reached" in refused(here, "postgresql://127.0.0.1:1/x")
    secret = refused(here, "postgresql://ann:secret@127.0.0.1:1/x")
    assert "secret" not in secret
    alone.out("send", "hello", "--database", postgres)
    assert "not empty" in refused(here, postgres)
    assert "--from" in alone.refused("move", "--to", here, code=2)


def test_a_move_waits_for_running_turns_and_refuses_new_work(alone: Shell, postgres: str) -> None:
    here = f"sqlite:///{alone.folder}/holdfast.db"
    alone.environment |= {"HOLDFAST_DATABASE": here, "PYTHONPATH": f"{alone.folder}"}
    alone.write("slow.py", APP)
    urls = ("--from", here, "--to", postgres)
    with alone.running("work", "--app", "slow:app") as worker:
        first = alone.out("send", "one").strip()
        eventually((alone.folder / "started").exists)
        late = alone.refused("move", *urls, "--wait", "1s")
        assert "1 turns are still running on the source" in late
        assert "nothing was changed" in late
        second = alone.out("send", "two").strip()
        command = [sys.executable, "-m", "holdfast", "move", *urls, "--wait", "50s"]
        with subprocess.Popen(command, cwd=alone.folder, env=alone.environment) as moving:
            eventually(lambda: "being moved" in alone.run("send", "three").stderr)
            (alone.folder / "may end").touch()
            assert moving.wait(TIMEOUT) == 0
        worker.signal()
    finished = {one["message_id"]: one["outcome"] for one in _history(alone, postgres)}
    assert finished[first] == "completed"
    assert second not in finished, "it was not claimed once the move had begun"


def _history(shell: Shell, url: str) -> list[dict[str, str]]:
    listed: list[dict[str, str]] = shell.json("history", "--database", url)
    return listed


def test_a_terminal_shows_a_progress_bar(alone: Shell, postgres: str) -> None:
    here = f"sqlite:///{alone.folder}/holdfast.db"
    alone.out("migrate", "--database", here)
    with at_terminal(alone, "move", "--from", here, "--to", postgres) as terminal:
        terminal.read_until("verifying setting")
        terminal.read_until("counts and hashes are equal")
        assert terminal.end() == 0
    assert "━" in terminal.shown
