"""Every example is run as its page says."""

from __future__ import annotations

import json
import os
import shutil
from importlib import import_module
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from holdfast import AgentHarness
from holdfast.testing.trial import trial
from tests.cli.shell import Running, Shell, eventually

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    """In a copy of the example."""
    return Shell(Path(shutil.copytree(EXAMPLES / request.param, tmp_path / request.param)))


@pytest.fixture
def app(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AgentHarness:
    folder, module = request.param
    monkeypatch.syspath_prepend(str(EXAMPLES / folder))
    made = import_module(module).app
    assert isinstance(made, AgentHarness)
    return made


@pytest.mark.parametrize("app", [("function", "calculator")], indirect=True)
async def test_a_function(app: AgentHarness) -> None:
    async with trial(app) as at_work:
        for text in ("6 * 7", "hello", "1 / 0", "flaky"):
            await at_work.say(text)
            await at_work.work()
        hint = 'say something like "6 * 7"'
        assert [event.event["message"] for event in await at_work.responses()] == [
            "6 * 7 = 42",
            hint,
            hint,
        ]
        assert await at_work.dead_letters() == ["division by zero"]


@pytest.mark.parametrize("shell", ["function"], indirect=True)
def test_issue_13_2_messages_of_200_kb_cost_the_calculator_little_time(shell: Shell) -> None:
    """The error repeats the message. A quadratic pattern needs over a minute to redact one."""
    hostile = ("a", " ", "sk-", "a://", "**", "`\ue0010\ue002`")
    texts = [f"6 * {text * (200_000 // len(text.encode()))}7" for text in hostile]
    quickly = {"HOLDFAST_RETRY_FIRST": "5ms", "HOLDFAST_RETRY_MOST": "10ms"}
    command = ("up", "--port", "0", "--app", "calculator:app", "--no-auth")
    with shell.running(*command, **quickly) as up:
        before = cpu_seconds(up)
        for text in texts:
            body = json.dumps({"message": text}).encode()
            headers = {"Content-Type": "application/json"}
            with urlopen(Request(f"{up.address}/api/message", body, headers)) as answer:
                assert answer.status == 200
        eventually(lambda: len(shell.json("history", "--queue", "inbox")) == len(texts))
        assert cpu_seconds(up) - before < 10


def cpu_seconds(running: Running) -> float:
    """Return the CPU time of a process: the wall clock depends on what else the machine does."""
    _, _, fields = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(") ")
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("shell", ["llm"], indirect=True)
def test_a_language_model(shell: Shell) -> None:
    with shell.running("work"):
        assert shell.out("send", "Emma", "--wait") == "Emma stands on shelf B1.\n"
        assert shell.out("send", "Ulysses", "--wait") == "there is no Ulysses here.\n"


@pytest.mark.parametrize("shell", ["command"], indirect=True)
def test_a_command(shell: Shell) -> None:
    with shell.running("work"):
        assert shell.out("send", "one two three", "--wait") == "3 words, 3 in all\n"
        assert shell.out("send", "four", "--wait") == "1 words, 4 in all\n"


@pytest.mark.parametrize("app", [("team", "developers")], indirect=True)
async def test_a_team(app: AgentHarness) -> None:
    async with trial(app) as at_work:
        await at_work.say("a game", agent="dev")
        await at_work.work()
        answers = {
            event.event["agent"]: event.event["message"] for event in await at_work.responses()
        }
        assert answers["lead"] == "On it."
        assert answers["coder"].startswith("coded: ")
        assert answers["coder"].endswith("write a game")
        assert answers["writer"].endswith("describe a game")


def test_every_example_is_listed() -> None:
    page = (EXAMPLES / "README.md").read_text()
    folders = [
        path.name for path in EXAMPLES.iterdir() if path.is_dir() and not path.name.startswith("_")
    ]
    assert [name for name in folders if f"[{name}]({name}" not in page] == []
