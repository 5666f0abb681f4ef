"""Without extras, features that need one name it in one line, and everything else works."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path

import pytest

from holdfast.settings.extras import DISTRIBUTION, EXTRAS
from tests.cli.shell import ROOT, Shell

APP = """
from holdfast import AgentHarness

app = AgentHarness()

@app.agent("coder", memory=True)
async def coder(turn):
    turn.memory.observe("likes tea")
    return f"found {len(turn.memory.relevant)}"
"""

LLM = """
[agents.writer]
kind = "llm"
model = "test"
"""


@pytest.fixture
def bare(tmp_path: Path) -> Shell:
    """Commands in a Python that finds no package of an extra."""
    shell = Shell(tmp_path, cold=True)
    shell.environment["PYTHONPATH"] = f"{Path(__file__).parent}{os.pathsep}{ROOT}"
    return shell


def install(extra: str) -> str:
    return f"pip install 'holdfast-agents[{extra}]'"


def test_demo_slack_says_which_extra_is_missing(bare: Shell) -> None:
    refusal = bare.refused("demo", "slack")
    assert (
        refusal == "holdfast: `holdfast demo slack` needs packages that are not installed:"
        f" {install('slack')}"
    )


def test_slack_says_which_extra_is_missing(bare: Shell) -> None:
    refusal = bare.refused("work", SLACK_BOT_TOKEN="xoxb-1", SLACK_APP_TOKEN="xapp-1")
    assert refusal == f"holdfast: Slack needs packages that are not installed: {install('slack')}"


def test_a_language_model_says_which_extra_is_missing(bare: Shell) -> None:
    bare.write("holdfast.toml", LLM)
    refusal = bare.refused("work")
    assert refusal.endswith(
        f"a language model needs packages that are not installed: {install('llm')}"
    )
    assert "holdfast.toml:4: agents.writer.model: " in refusal


def test_memory_says_which_extra_is_missing_and_a_stop_stays_quick(bare: Shell) -> None:
    bare.write("my_app.py", APP)
    with bare.running("work", "--app", "my_app:app") as work:
        assert bare.out("send", "hello", "--wait") == "found 0\n"
        asked_at = time.monotonic()
        assert bare.out("send", "hello", "--wait") == "found 0\n"
        work.signal()
        assert work.end() == 0
        assert time.monotonic() - asked_at < 20, "a stop waits 30 s for a turn that does not end"
        assert work.log.count(install("memory")) == 1
    assert install("memory") in bare.refused("memory", "search", "default:USER:ann", "tea")


def test_doctor_names_the_missing_extras_and_fails_for_those_that_are_needed(bare: Shell) -> None:
    doctor_output = bare.out("doctor")
    for extra in EXTRAS:
        assert f"ok    extra {extra}: not installed: {install(extra)}\n" in doctor_output
    bare.write("holdfast.toml", LLM)
    failed = bare.run("doctor")
    assert failed.returncode == 1
    assert f"fail  extra llm: not installed: {install('llm')}\n" in failed.stdout


def test_doctor_fails_for_a_missing_oidc_extra_that_the_settings_need(bare: Shell) -> None:
    bare.write("holdfast.toml", 'oidc_issuer = "https://accounts.example.com"\n')
    failed = bare.run("doctor")
    assert failed.returncode == 1
    assert f"fail  extra oidc: not installed: {install('oidc')}\n" in failed.stdout


def test_extras_and_the_name_of_the_distribution_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION == "holdfast-agents"
    assert set(project["optional-dependencies"]) == set(EXTRAS)


@pytest.mark.chaos
def test_a_plain_install_in_a_venv_of_its_own_answers(tmp_path: Path) -> None:
    """A wheel, its dependencies without extras, and the commands that a new user runs."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=True)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(tmp_path),
    ]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    [wheel] = tmp_path.glob("holdfast_agents-*.whl")
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", str(wheel)], check=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    program = str(folder / "bin" / "holdfast")
    doctor_output = subprocess.run(
        [program, "doctor"], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert doctor_output.returncode == 0
    assert install("slack") in doctor_output.stdout
    demo = subprocess.run(
        [program, "demo", "slack"], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert (demo.returncode, demo.stderr.count("\n")) == (1, 1)
    assert install("slack") in demo.stderr
