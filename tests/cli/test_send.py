"""`holdfast send`: stored at once, and with --wait answered, acked or refused in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cli.shell import Shell, eventually

APP = """
from holdfast import AgentHarness, Dead, Snooze

app = AgentHarness(default="echo")

@app.agent("echo", lane="agent")
async def echo(turn):
    return f"{turn.sender}: {turn.text}"

@app.agent("silent")
async def silent(turn):
    return None

@app.agent("strict")
async def strict(turn):
    return Dead("not today")

@app.agent("never", max_attempts=1)
async def never(turn):
    raise RuntimeError("out of order")
"""

COLLECTING = """
from holdfast import AgentHarness

app = AgentHarness()

@app.agent("collector", turns="collect")
async def collector(turn):
    return ", ".join(event.text for event in turn.events)
"""


@pytest.fixture
def at_work(shell: Shell) -> Iterator[Shell]:
    """A shell whose database is being worked by the app above."""
    shell.write("my_app.py", APP)
    with shell.running("work", "--app", "my_app:app"):
        yield shell


def test_an_answer_is_printed_and_acked(at_work: Shell) -> None:
    assert at_work.out("send", "hello", "--wait", "--sender", "Ada") == "Ada: hello\n"
    inbox, outbox, *_ = at_work.json("status")["queues"]
    assert (inbox["finished"], inbox["ready"] + inbox["leased"]) == (1, 0)
    assert (outbox["finished"], outbox["ready"] + outbox["leased"]) == (1, 0)


def test_several_who_wait_each_get_their_own_answer(at_work: Shell) -> None:
    for _ in range(3):
        at_work.out("send", "nobody fetches this")
    assert (
        at_work.out("send", "mine", "--wait", "--sender", "me", "--agent", "ECHO") == "me: mine\n"
    )
    assert eventually(lambda: at_work.json("status")["queues"][1]["ready"] == 1)


def test_whoever_waits_for_a_collected_message_gets_the_answer_to_it(shell: Shell) -> None:
    shell.write("my_app.py", COLLECTING)
    first = shell.out("send", "one", "--sender", "ada").strip()
    with ThreadPoolExecutor(1) as waiting:
        second = waiting.submit(shell.json, "send", "two", "--wait", "--sender", "ada")
        assert eventually(lambda: shell.json("status")["queues"][0]["queued"] == 1)
        with shell.running("work", "--app", "my_app:app"):
            sent = second.result()
    assert sent["answer"]["message"] == "one, two"
    assert sent["answer"]["message_ids"] == [first, sent["messageId"]]


def test_without_wait_the_id_of_the_message_is_printed(shell: Shell) -> None:
    prefix, _, rest = shell.out("send", "hello").strip().partition("_")
    assert (prefix, len(rest)) == ("api", 8)
    assert shell.json("status")["queues"][0]["ready"] == 1


def test_json_holds_ids_and_answer(at_work: Shell) -> None:
    assert set(at_work.json("send", "hello")) == {"messageId", "id"}
    sent = at_work.json("send", "hello", "--wait")
    assert sent["answer"]["message"].endswith(": hello")
    assert sent["answer"]["message_id"] == sent["messageId"]


def test_a_message_comes_from_stdin_whole(at_work: Shell) -> None:
    text = "line one\n--line two\n" + "x" * 200_000
    done = at_work.run("send", "-", "--wait", "--sender", "s", given=text)
    assert (done.returncode, done.stdout) == (0, f"s: {text}\n")


def test_silence_is_no_failure(at_work: Shell) -> None:
    done = at_work.run("send", "hello", "--agent", "silent", "--wait")
    assert (done.returncode, done.stdout) == (0, "")
    assert "silence" in done.stderr
    assert (
        json.loads(at_work.run("send", "hello", "--agent", "silent", "--wait", "--json").stdout)[
            "answer"
        ]
        is None
    )


def test_a_dead_letter_is_exit_1_and_says_why(at_work: Shell) -> None:
    line = at_work.refused("send", "hello", "--agent", "strict", "--wait")
    assert "not today" in line
    [letter] = at_work.json("dead", "list")
    assert f"event {letter['id']}" in line


def test_the_end_of_patience_is_exit_1_and_the_message_stays(shell: Shell) -> None:
    line = shell.refused("send", "hello", "--wait", "--timeout", "0.2s")
    assert "no answer within 0.2 s" in line
    assert shell.json("status")["queues"][0]["ready"] == 1


def test_an_unknown_agent_is_refused_and_nothing_is_stored(at_work: Shell) -> None:
    line = at_work.refused("send", "hello", "--agent", "nobody")
    assert "nobody" in line
    assert "echo, never, silent, strict" in line
    assert at_work.json("status")["queues"][0]["ready"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [""],
        ["  "],
        ["x", "--timeout", "soon"],
        [],
        ["x", "y"],
        [b"\xff".decode(errors="surrogateescape")],
    ],
)
def test_wrong_usage_is_exit_2(alone: Shell, arguments: list[str]) -> None:
    assert "--help" in alone.refused("send", *arguments, code=2)
