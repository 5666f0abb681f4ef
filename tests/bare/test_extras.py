"""Without extras, features that need one name it in one line, and everything else works."""

from __future__ import annotations

import os
import time
import tomllib
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
    extras = dict(project["optional-dependencies"])
    [everything] = extras.pop("all")
    assert set(extras) == set(EXTRAS)
    assert set(everything.partition("[")[2].rstrip("]").split(",")) == set(EXTRAS)
