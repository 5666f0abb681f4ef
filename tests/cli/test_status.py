"""`holdfast status` and `holdfast agents`."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from holdfast.queue.event import OUTBOX, NewEvent
from holdfast.store import open_store
from tests.cli.shell import Shell, eventually

APP = """
from holdfast import AgentHarness

app = AgentHarness(default="coder")
app.agent("coder")(lambda turn: "yes")
app.agent("writer", lane="agent")(lambda turn: "yes")
"""


def test_status_counts_waiting_events_and_names_processes(shell: Shell) -> None:
    assert "no process works" in shell.out("status")
    for _ in range(3):
        shell.out("send", "hello")
    inbox, outbox, memory = shell.json("status")["queues"]
    assert (inbox["queue"], inbox["ready"], inbox["queued"], inbox["dead"]) == ("inbox", 1, 2, 0)
    assert (outbox["queue"], memory["queue"]) == ("outbox", "memory")
    with shell.running("work"):
        eventually(lambda: shell.json("status")["queues"][0]["finished"] == 3)
        [process] = shell.json("status")["processes"]
        assert process["id"] in shell.out("status")


def test_watch_prints_json_lines_with_rates_and_ctrl_c_is_exit_0(shell: Shell) -> None:
    with shell.running("status", "--watch", "--json", "--every", "50ms") as watch:
        assert json.loads(watch.ready)["queues"][0]["arriving"] is None
        assert json.loads(watch.stdout.readline())["queues"][0]["arriving"] == 0
        shell.out("send", "hello")
        looks = map(json.loads, watch.stdout)
        assert eventually(lambda: next(looks)["queues"][0]["arriving"]) > 0
        watch.signal(signal.SIGINT)
        assert watch.end() == 0
        assert watch.log == ""


def test_a_watch_without_a_pause_is_refused(shell: Shell) -> None:
    line = shell.refused("status", "--watch", "--every", "0", code=2)
    assert "--every is at least 0.01 s" in line


def test_configured_agents_are_shown_before_the_first_start(alone: Shell) -> None:
    alone.write("holdfast.toml", '[agents.parrot]\nkind = "echo"\n')
    [parrot] = alone.json("agents")
    assert (parrot["agent"], parrot["kind"], parrot["default"], parrot["ready"]) == (
        "parrot",
        "echo",
        True,
        0,
    )
    assert "the database is new" in alone.refused("status")


def test_agents_of_the_last_process_stay_known(shell: Shell) -> None:
    assert shell.json("agents") == []
    assert "no agents" in shell.out("agents")
    shell.write("my_app.py", APP)
    with shell.running("work", "--app", "my_app:app") as work:
        work.signal()
        assert work.end() == 0
    shell.out("send", "hello")
    assert (
        "no running process serves writer" in shell.run("send", "hello", "--agent", "writer").stderr
    )
    coder, writer = shell.json("agents")
    assert (coder["agent"], coder["default"], coder["lane"], coder["ready"]) == (
        "coder",
        True,
        "conversation",
        1,
    )
    assert (writer["agent"], writer["default"], writer["lane"], writer["ready"]) == (
        "writer",
        False,
        "agent",
        1,
    )
    assert "writer" in shell.out("agents")


CHANNEL = """
import asyncio
from holdfast import AgentHarness
from holdfast.channels.base import Channel

class Pager(Channel):
    name = "pager"

    async def run(self, put):
        await asyncio.Event().wait()

    async def send(self, response):
        raise ConnectionError("the pager is off")

app = AgentHarness(lambda turn: "yes")
app.add_channel(Pager())
"""


def respond(url: str, *channels: str) -> None:
    """Store a response for each of these channels."""

    async def put() -> None:
        async with open_store(url) as store:
            payloads = [{"kind": "response", "channel": one, "message": "hi"} for one in channels]
            await store.put(
                [NewEvent(event=one, queue=OUTBOX, target=one["channel"]) for one in payloads]
            )

    asyncio.run(put())


def test_responses_that_no_process_delivers_are_to_fetch_and_no_backlog(
    shell: Shell, url: str
) -> None:
    shell.write("my_app.py", CHANNEL)
    respond(url, "api", "pager", "slack")
    with shell.running("work", "--app", "my_app:app") as work:
        eventually(lambda: shell.json("status")["queues"][1]["leased"] == 0)
        outbox = shell.json("status")["queues"][1]
        # A process serves the pager; Slack is a platform that nobody else fetches from.
        assert (outbox["to_fetch"], outbox["ready"] + outbox["delayed"]) == (1, 2)
        assert "to fetch" in shell.out("status")
        work.signal()
        assert work.end() == 0
    assert shell.json("status")["queues"][1]["to_fetch"] == 2, "nobody serves the pager now"


def test_a_damaged_routing_is_one_line_and_a_start_repairs_it(shell: Shell, url: str) -> None:
    async def damage() -> None:
        async with open_store(url) as store:
            await store.set_setting("routing", {"lanes": []})

    asyncio.run(damage())
    for command in (("status",), ("agents",), ("send", "hello")):
        assert "the setting 'routing' in the database is damaged" in shell.refused(*command)
    with shell.running("work"):
        assert shell.out("send", "hello", "--wait") == "you said hello\n"


@pytest.mark.parametrize("columns", [80, 200])
def test_a_watch_fits_the_terminal(shell: Shell, columns: int) -> None:
    with shell.running("work"):
        shell.out("send", "hello", "--wait")
        terminal = {"COLUMNS": str(columns), "LINES": "40", "NO_COLOR": "1", "TERM": "xterm"}
        text = watch_at_terminal(shell, "status", "--watch", "--every", "50ms", **terminal)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", text).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= columns
    assert any("in/s" in line or "arriving/s" in line for line in lines)
    assert any(re.search(r"\d+ s ago", line) for line in lines), "ages of processes"
    assert any(line.strip().startswith("inbox ") for line in lines)


def watch_at_terminal(shell: Shell, *arguments: str, **variables: str) -> str:
    """Run a command at a terminal until it has shown rates. Returns its output."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *arguments],
        cwd=shell.folder,
        env=shell.environment | variables,
        stdin=follower,
        stdout=follower,
        stderr=subprocess.DEVNULL,
    )
    os.close(follower)
    shown = b""
    while shown.count(b"/s") < 4:
        shown += os.read(leader, 65_536)
    process.send_signal(signal.SIGINT)
    with suppress(OSError):
        while chunk := os.read(leader, 65_536):
            shown += chunk
    os.close(leader)
    assert process.wait(60) == 0
    return shown.decode()
