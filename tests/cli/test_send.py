"""`holdfast send`: store a message; with --wait or --first, print the answers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from holdfast.store import open_store
from holdfast.store.chain import Chain, read_chain
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

TEAM = """
import asyncio, os
from holdfast import AgentHarness

app = AgentHarness(default="leader")

@app.agent("leader")
async def leader(turn):
    if turn.from_agent:
        return None
    return "I ask the others. [@writer: write] [@tester: test]"

@app.agent("writer")
async def writer(turn):
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)
    return "written"

@app.agent("tester", max_attempts=1)
async def tester(turn):
    if "broken" in open("mode").read():
        raise RuntimeError("the tests are red")
    return "tested"

app.team("dev", agents=["leader", "writer", "tester"], leader="leader")
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


def test_wait_prints_the_answer_and_acknowledges_it(at_work: Shell) -> None:
    assert at_work.out("send", "hello", "--wait", "--sender", "Ada") == "Ada: hello\n"
    inbox, outbox, *_ = at_work.json("status")["queues"]
    assert (inbox["finished"], inbox["ready"] + inbox["leased"]) == (1, 0)
    assert (outbox["finished"], outbox["ready"] + outbox["leased"]) == (1, 0)


def test_wait_prints_only_the_answer_to_its_own_message(at_work: Shell) -> None:
    for _ in range(3):
        at_work.out("send", "nobody fetches this")
    assert (
        at_work.out("send", "mine", "--wait", "--sender", "me", "--agent", "ECHO") == "me: mine\n"
    )
    outbox = at_work.json("status")["queues"][1]
    # Clients fetch these responses, so they do not count as a backlog.
    assert (outbox["to_fetch"], outbox["ready"], outbox["queued"]) == (3, 0, 0)


def test_wait_for_a_collected_message_prints_the_answer_to_all_of_them(shell: Shell) -> None:
    shell.write("my_app.py", COLLECTING)
    first = shell.out("send", "one", "--sender", "ada").strip()
    with ThreadPoolExecutor(1) as waiting:
        second = waiting.submit(shell.json, "send", "two", "--wait", "--sender", "ada")
        assert eventually(lambda: shell.json("status")["queues"][0]["queued"] == 1)
        with shell.running("work", "--app", "my_app:app"):
            sent = second.result()
    assert sent["answer"]["message"] == "one, two"
    assert sent["answer"]["message_ids"] == [first, sent["messageId"]]


def test_a_message_that_ends_while_its_chain_is_read_is_not_over_yet(
    shell: Shell, url: str
) -> None:
    """The message was read while live, the rest after it had ended: its outcome is unknown."""
    message_id = shell.out("send", "hello").strip()

    async def read() -> Chain | None:
        async with open_store(url) as store:
            return await read_chain(store, message_id)

    chain = asyncio.run(read())
    assert chain is not None
    assert (chain.status, chain.open) == ("pending", 1)
    assert not replace(chain, open=0).is_over
    assert replace(chain, open=0, status="dead").is_over


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


def test_ctrl_c_ends_the_waiting_and_says_that_the_message_stays_stored(shell: Shell) -> None:
    errors = shell.folder / "errors"
    with open(os.devnull) as given, open(os.devnull, "w") as out, errors.open("w") as err:
        sending = shell._start(("send", "hello", "--wait"), {}, given, out, err)
        eventually(lambda: shell.json("status")["queues"][0]["ready"])
        sending.send_signal(signal.SIGINT)
        assert sending.wait(30) == 130
    assert errors.read_text() == "holdfast: interrupted, event 1 stays stored\n"


def test_a_timeout_is_exit_1_and_the_message_stays_stored(shell: Shell) -> None:
    line = shell.refused("send", "hello", "--wait", "--timeout", "0.2s")
    assert "no answer within 0.2 s" in line
    assert shell.json("status")["queues"][0]["ready"] == 1


def test_an_unknown_agent_is_refused_and_nothing_is_stored(at_work: Shell) -> None:
    line = at_work.refused("send", "hello", "--agent", "nobody")
    assert "nobody" in line
    assert "echo, never, silent, strict" in line
    assert at_work.json("status")["queues"][0]["ready"] == 0


@pytest.fixture
def with_team(shell: Shell) -> Iterator[Shell]:
    """A shell whose database is worked by a team of three."""
    shell.write("my_app.py", TEAM)
    shell.write("mode", "good")
    with shell.running("work", "--app", "my_app:app"):
        yield shell


def test_wait_prints_the_answers_of_a_team_as_they_come_until_the_last(with_team: Shell) -> None:
    with with_team.running("send", "@dev hello", "--wait") as sending:
        assert sending.ready == "I ask the others.\n"
        assert sending.stdout.readline() == "@tester: tested\n"
        # The writer waits for this file: the command has to go on until its answer is there.
        with_team.write("go", "")
        assert sending.stdout.readline() == "@writer: written\n"
        assert sending.end() == 0
        assert sending.log == ""
    outbox = with_team.json("status")["queues"][1]
    assert (outbox["finished"], outbox["to_fetch"]) == (3, 0)


def test_first_ends_with_the_first_answer(with_team: Shell) -> None:
    assert with_team.out("send", "@dev hello", "--first") == "I ask the others.\n"
    with_team.write("go", "")


def test_json_of_a_team_holds_all_answers(with_team: Shell) -> None:
    with_team.write("go", "")
    sent = with_team.json("send", "@dev hello", "--wait")
    assert sent["answer"]["agent"] == "leader"
    assert {answer["agent"] for answer in sent["answers"]} == {"leader", "writer", "tester"}


def test_a_teammate_that_fails_is_named_and_the_exit_code_is_1(with_team: Shell) -> None:
    with_team.write("mode", "broken")
    with_team.write("go", "")
    done = with_team.run("send", "@dev hello", "--wait")
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == ["@writer: written", "I ask the others."]
    assert done.stderr.startswith("holdfast: @tester did not answer: message internal_")
    assert "the tests are red" in done.stderr


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
