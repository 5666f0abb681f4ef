"""The coding agent that speaks ACP, worked by real processes."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.cli.shell import Running, Shell, eventually

EXAMPLE = "coding"
UP = ("up", "--port", "0", "--no-auth")


class Client:
    """A person who writes to the agent by the API and answers its questions."""

    def __init__(self, up: Running, id: str = "") -> None:
        self._address = up.address
        self.id = id

    def write(self, text: str) -> None:
        self.id = self._call("/api/message", {"message": text})["messageId"]

    def question(self) -> dict[str, Any]:
        """Wait until the agent asks something that is not answered yet."""
        asked: dict[str, Any] = eventually(lambda: self._status().get("waitingFor", {}))
        return asked

    def choose(self, question: dict[str, Any], label: str) -> None:
        body = {"name": question["signal"], "value": label}
        self._call(f"/api/message/{self.id}/signal", body)

    def answer(self) -> str:
        status = eventually(lambda: (now := self._status())["status"] == "completed" and now)
        return str(status["response"])

    def _status(self) -> dict[str, Any]:
        return self._call(f"/api/message/{self.id}")

    def _call(self, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._address}{path}", data, {"Content-Type": "application/json"})
        with urlopen(request) as response:
            found: dict[str, Any] = json.load(response)
            return found


@pytest.fixture
def workspace(shell: Shell) -> Path:
    return shell.folder / ".holdfast" / "workspace" / "coder"


def test_a_file_changes_after_somebody_permitted_it(shell: Shell, workspace: Path) -> None:
    with shell.running(*UP) as up:
        client = Client(up)
        client.write("write paint.py: colour = 'red'")
        question = client.question()
        assert question["prompt"] == "**Change paint.py**\n```\npaint.py\n+ colour = 'red'\n```"
        assert not (workspace / "paint.py").exists()
        client.choose(question, "Do it")
        assert client.answer() == "I changed paint.py."
        client.write("rename colour to hue")
        client.choose(client.question(), "Leave it")
        assert client.answer() == "colour stands in 1 files.\n\nI left paint.py as it was."
    assert (workspace / "paint.py").read_text() == "colour = 'red'\n"


def test_a_question_survives_a_kill_and_the_session_goes_on(shell: Shell, workspace: Path) -> None:
    with shell.running(*UP) as up:
        client = Client(up)
        client.write("write paint.py: colour = 'red'")
        client.choose(client.question(), "Do it")
        client.answer()
        client.write("rename colour to hue")
        question = client.question()
        up.signal(signal.SIGKILL)
        up.end()
    with shell.running(*UP) as up:
        client = Client(up, client.id)
        assert client.question() == question
        client.choose(question, "Do it")
        answer = client.answer()
    assert answer == "colour stands in 1 files.\n\nI changed paint.py."
    assert (workspace / "paint.py").read_text() == "hue = 'red'\n"
    [session] = (workspace / ".sessions").iterdir()
    assert session.read_text().count("user_message_chunk") == 4
