"""`holdfast tail` and `holdfast stop`."""

from __future__ import annotations

import json
import os
import re
import signal

from tests.cli.shell import Shell, eventually
from tests.cli.test_up import APP

STREAMING = """
import asyncio
from holdfast import AgentHarness

app = AgentHarness(default="writer")

async def look():
    return "found"

@app.agent("writer")
async def writer(turn):
    turn.progress("reading 3 of 7 files")
    await turn.step("look", look)
    yield "one "
    await asyncio.sleep(0.4)
    yield "two"
"""


def tail_while_sending(shell: Shell, *options: str) -> list[str]:
    """Run `tail` until it has printed the end of a turn. Returns its lines."""
    output, errors = shell.folder / "output", shell.folder / "errors"
    with (
        shell.write("nothing", "").open() as given,
        output.open("w") as out,
        errors.open("w") as err,
    ):
        tail = shell._start(("tail", *options), {}, given, out, err)
        try:
            # Workers start to record within two seconds.
            eventually(
                lambda: (
                    shell.out("send", "hello", "--wait") and "chain_step_done" in output.read_text()
                )
            )
        finally:
            tail.send_signal(signal.SIGINT)
        assert tail.wait(30) == 0
    return output.read_text().splitlines()


def test_tail_prints_steps_texts_and_progress_as_lines(shell: Shell) -> None:
    shell.write("my_app.py", STREAMING)
    with shell.running("work", "--app", "my_app:app"):
        lines = tail_while_sending(shell)
    found = [re.sub(r"^\S+ (\S+) writer \S+ ", r"\1: ", line) for line in lines]
    wanted = ["progress: reading 3 of 7 files", "step_start: look", "step_done: look"]
    assert set(found) >= {*wanted, "response_delta: one", "response_delta: two"}


def test_tail_prints_activity_as_it_happens(shell: Shell) -> None:
    shell.write("my_app.py", APP)
    with shell.running("work", "--app", "my_app:app"):
        lines = tail_while_sending(shell, "--json", "--agent", "polite")
        frames = [json.loads(line) for line in lines]
    assert {"message_received", "chain_step_done"} <= {frame["type"] for frame in frames}
    assert {frame["agent"] for frame in frames} == {"polite"}


def test_tail_of_an_unknown_agent_says_so_and_waits_for_it(shell: Shell) -> None:
    shell.write("my_app.py", APP)
    errors = shell.folder / "errors"
    with shell.running("work", "--app", "my_app:app"), errors.open("w") as err:
        with open(os.devnull) as given, open(os.devnull, "w") as out:
            tail = shell._start(("tail", "--agent", "nobody"), {}, given, out, err)
        try:
            eventually(lambda: "there is no agent 'nobody'; known are: " in errors.read_text())
        finally:
            tail.send_signal(signal.SIGINT)
        assert tail.wait(30) == 0


def test_stop_ends_a_running_turn_and_names_the_command_that_retries_it(shell: Shell) -> None:
    shell.write("my_app.py", APP)
    with shell.running("work", "--app", "my_app:app"):
        id_ = shell.json("send", "work", "--agent", "slow")["id"]
        eventually((shell.folder / "started").exists)
        assert (
            shell.out("stop", str(id_))
            == f"stopped {id_}; `holdfast dead retry {id_}` runs it again\n"
        )
        [letter] = shell.json("dead", "list")
        assert (letter["id"], letter["outcome"]) == (id_, "cancelled")
        gone = "999999 neither runs nor waits: there is no such live event"
        assert gone in shell.refused("stop", "999999")


def test_stop_takes_the_id_of_a_message_and_ends_one_that_waits(shell: Shell) -> None:
    message_id = shell.out("send", "hello").strip()
    assert shell.out("stop", message_id).startswith("stopped ")
    [letter] = shell.json("dead", "list")
    assert (letter["message_id"], letter["outcome"]) == (message_id, "cancelled")
    assert letter["last_error"] == "cancelled: at the command line"
    assert "there is no message nothing" in shell.refused("stop", "nothing")
