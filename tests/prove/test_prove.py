"""`holdfast prove` finds apps that lose, double, swap or repeat, and passes sound ones."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli import app as cli
from holdfast.testing.prove.history import Violations
from holdfast.testing.prove.plan import Plan
from holdfast.testing.prove.proof import SeedReport

ROOT = Path(__file__).parents[2]
QUICK = ("--messages", "16", "--conversations", "4", "--duration", "4s", "--seeds", "1")


def prove(
    folder: Path, app: str, *options: str, cwd: Path = ROOT
) -> tuple[int, list[dict[str, Any]], str]:
    """Run the command; return its exit code, its reports and its errors."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "prove", "--app", app, "--json", *options],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        # A token of a platform must not reach a worker.
        env=os.environ | {"TMPDIR": str(folder), "SLACK_BOT_TOKEN": "xoxb-1"},
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else [], done.stderr


def test_a_sound_app_passes(tmp_path: Path) -> None:
    code, [undisturbed, disturbed], errors = prove(tmp_path, "tests.prove.apps:sound", *QUICK)
    assert (code, errors) == (0, "")
    assert undisturbed["faults"] == {}
    assert sum(disturbed["faults"].values()) >= 4
    assert not any(disturbed["violations"].values())


@pytest.mark.parametrize(
    ("app", "kind"),
    [
        ("forgetful", "lost"),
        pytest.param("unstable", "steps_repeated", marks=pytest.mark.chaos),
        pytest.param("eager", "doubled", marks=pytest.mark.chaos),
        pytest.param("hasty", "out_of_order", marks=pytest.mark.chaos),
    ],
)
def test_an_app_with_a_fault_is_found(tmp_path: Path, app: str, kind: str) -> None:
    # A seed may miss the moment, so try a few.
    for seed in range(1, 6):
        code, reports, errors = prove(
            tmp_path, f"tests.prove.apps:{app}", *QUICK, "--seed", str(seed)
        )
        assert errors == ""
        found = [report for report in reports if report["violations"][kind]]
        assert code == (1 if found else 0)
        if found:
            return
    pytest.fail("no seed found the fault")


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("folder", "app"),
    [
        ("function", "calculator:app"),
        ("team", "developers:app"),
        ("llm", ""),
        ("oncall", "oncall:app"),
    ],
)
def test_the_examples_pass(tmp_path: Path, folder: str, app: str) -> None:
    code, _, errors = prove(tmp_path, app, "--seeds", "3", cwd=ROOT / "examples" / folder)
    assert (code, errors) == (0, "")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--app", "nowhere:app"), "there is no module 'nowhere'"),
        (("--duration", "0s"), "--duration must be longer than 0"),
        (("--database", "sqlite:///a.db"), "--database names a PostgreSQL server"),
        (("--texts", "nowhere.txt"), "cannot read nowhere.txt"),
    ],
)
def test_wrong_options_are_one_clear_line(
    tmp_path: Path, options: tuple[str, str], error: str
) -> None:
    code, _, errors = prove(tmp_path, "tests.prove.apps:sound", *options)
    assert code in (1, 2)
    assert error in errors
    assert errors.count("\n") == 1


def test_the_command_that_tries_a_seed_again_has_the_options_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(plan: Plan, seeds: range) -> AsyncIterator[SeedReport]:
        for seed in seeds:
            violations = Violations(lost=["a message"])
            yield SeedReport(
                seed=seed, faults={"kill": 1}, messages=8, dead=0, unknown=0, violations=violations
            )

    monkeypatch.setattr("holdfast.testing.prove.proof.prove", fail)
    monkeypatch.chdir(tmp_path)
    Path("my agents.toml").write_text("[agents.parrot]\nkind = 'echo'\n")
    Path("texts").write_text("hello\n")
    options = ["--config", "my agents.toml", "--texts", "texts", "--agent", "parrot"]
    options += ["--messages", "8", "--conversations", "2", "--workers", "3", "--duration", "5s"]
    server = "postgresql://joe:hunter2@host/db"
    result = CliRunner().invoke(cli, ["prove", *options, "--database", server, "--seed", "7"])
    assert isinstance(result.exception, SystemExit), result.exception
    [line] = [line for line in result.stdout.splitlines() if line.startswith("try again")]
    command = shlex.split(line.removeprefix("try again: "))
    again = [*options, "--database", "postgresql://joe:***@host/db", "--seeds", "1", "--seed", "7"]
    assert command[:2] == ["holdfast", "prove"]
    assert pairs(command[2:]) == pairs(again)


def pairs(options: list[str]) -> set[tuple[str, str]]:
    return set(zip(options[::2], options[1::2], strict=True))
