"""`holdfast chat`: a conversation at the terminal."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from holdfast.cli.printing import STARTED_OVER
from tests.cli.shell import Shell
from tests.cli.terminal import at_terminal

APP = """
import asyncio
from datetime import timedelta
from pathlib import Path

from holdfast import AgentHarness, Retry

app = AgentHarness(default="coder")

@app.agent("coder")
async def coder(turn):
    earlier = [line.text for line in await turn.history() if not line.is_own]
    return f"{turn.text} after {earlier}"

@app.agent("broken", max_attempts=1)
async def broken(turn):
    raise RuntimeError("out of paper")

async def allowed():
    while not Path("go").exists():
        await asyncio.sleep(0.02)

@app.agent("writer")
async def writer(turn):
    yield "one "
    await allowed()
    yield "two."

@app.agent("doubter")
async def doubter(turn):
    await turn.write("first thought" if turn.attempt == 1 else "second thought")
    await allowed()
    return Retry("again", timedelta(0)) if turn.attempt == 1 else None
"""


TEAM = """
from holdfast import AgentHarness

app = AgentHarness(default="leader")
app.add("leader", lambda turn: "I ask. [@writer: write]")
app.add("writer", lambda turn: "written")
app.team("dev", agents=["leader", "writer"], leader="leader")
"""


@pytest.fixture
def at_work(shell: Shell) -> Iterator[Shell]:
    shell.write("my_app.py", APP)
    with shell.running("work", "--app", "my_app:app"):
        yield shell


def chat(shell: Shell, *lines: str, arguments: tuple[str, ...] = ()) -> list[str]:
    """Type these lines into a chat without a terminal. Returns the lines that it printed."""
    done = shell.run(
        "chat", "--sender", "ann", *arguments, given="".join(f"{one}\n" for one in lines)
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.splitlines()


def test_each_line_is_answered_in_one_conversation(at_work: Shell) -> None:
    assert chat(at_work, "hello") == ["coder: hello after []"]
    earlier, you, coder, answer = chat(at_work, "again")
    assert earlier.startswith("earlier in this conversation, last ")
    assert (you, coder) == ("you: hello", "coder: hello after []")
    assert answer == "coder: again after ['hello']"


def test_new_starts_a_conversation_without_the_history_and_it_can_be_continued(
    at_work: Shell,
) -> None:
    chat(at_work, "hello")
    *_, started, answer = chat(at_work, "/new", "first")
    assert started.startswith("new conversation chat_")
    assert answer == "coder: first after []"
    name = started.split()[-1]
    *_, answer = chat(at_work, "second", arguments=("--conversation", name))
    assert answer == "coder: second after ['first']"


def test_without_a_terminal_each_line_is_answered_before_the_next_is_read(at_work: Shell) -> None:
    first, second, started, fresh = chat(at_work, "one", "two", "/new", "three", "/quit", "unread")
    assert (first, second) == ("coder: one after []", "coder: two after ['one']")
    assert (started[:16], fresh) == ("new conversation", "coder: three after []")


def test_the_messages_of_teammates_to_each_other_are_no_lines_of_the_person(shell: Shell) -> None:
    shell.write("my_app.py", TEAM)
    with shell.running("work", "--app", "my_app:app"):
        assert sorted(chat(shell, "@dev hello")) == ["leader: I ask.", "writer: written"]
        _, *lines, _, _ = chat(shell, "@dev again")
    asked = "leader: I ask. [@writer: write]"
    assert sorted(lines) == [asked, "writer: written", "you: @dev hello"]


def test_a_chat_without_a_running_process_says_so(shell: Shell) -> None:
    done = shell.run("chat", given="/quit\n")
    assert done.returncode == 0
    assert done.stderr == "holdfast: no process works on this database; start `holdfast up`\n"


def test_a_dead_letter_is_a_line_and_the_chat_goes_on(at_work: Shell) -> None:
    done = at_work.run("chat", given="@broken hello\n\nhello\n")
    assert done.returncode == 0
    assert done.stdout == "coder: hello after []\n"
    assert done.stderr.startswith("holdfast: message api_")
    [line] = done.stderr.splitlines()
    assert "ended dead: RuntimeError: out of paper; retry with `holdfast dead retry " in line


def test_an_unknown_agent_is_refused_in_one_line(at_work: Shell) -> None:
    done = at_work.run("chat", "--agent", "nobody", given="hello\n")
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("holdfast: there is no agent named 'nobody'; known are: ")


def test_an_earlier_text_is_shown_shortened(at_work: Shell) -> None:
    chat(at_work, "x" * 5000)
    _, you, coder = chat(at_work)
    assert you == f"you: {'x' * 4000}… (5000 characters)"
    assert coder.startswith("coder: xxx")
    assert len(coder) < 4100


@pytest.mark.parametrize("end", ["/quit", "Ctrl-C"])
def test_a_terminal_shows_a_prompt_and_the_chat_ends_cleanly(at_work: Shell, end: str) -> None:
    with at_terminal(at_work, "chat", "--sender", "ann") as terminal:
        terminal.read_until("/quit ends\n> ")
        terminal.type("hello\n")
        terminal.read_until("coder: hello after []\n> ")
        if end == "/quit":
            terminal.type("/quit\n")
        else:
            terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
        assert "rror" not in terminal.shown


def test_a_terminal_shows_an_answer_as_it_grows(at_work: Shell) -> None:
    with at_terminal(at_work, "chat", "--sender", "ann", "--agent", "writer") as terminal:
        terminal.read_until("> ")
        terminal.type("write\n")
        terminal.read_until("writer: one ")
        assert "two" not in terminal.shown
        at_work.write("go", "")
        terminal.read_until("writer: one two.\n> ")
        terminal.type("/quit\n")
        assert terminal.end() == 0


def test_an_answer_that_starts_over_at_a_terminal_says_so(at_work: Shell) -> None:
    with at_terminal(at_work, "send", "write", "--agent", "doubter", "--wait") as terminal:
        terminal.read_until("first thought")
        at_work.write("go", "")
        assert terminal.end() == 0
        assert terminal.shown == f"first thought\n{STARTED_OVER}\nsecond thought\n"


def test_send_at_a_terminal_prints_an_answer_as_it_grows_and_a_pipe_gets_it_whole(
    at_work: Shell,
) -> None:
    with at_terminal(at_work, "send", "write", "--agent", "writer", "--wait") as terminal:
        terminal.read_until("one ")
        assert "two" not in terminal.shown
        at_work.write("go", "")
        assert terminal.end() == 0
        assert terminal.shown == "one two.\n"
    assert at_work.out("send", "write", "--agent", "writer", "--wait") == "one two.\n"
