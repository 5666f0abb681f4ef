"""`holdfast status` and `holdfast agents`."""

from __future__ import annotations

import json
import signal

from tests.cli.shell import Shell, eventually

APP = """
from holdfast import AgentHarness

app = AgentHarness(default="coder")
app.agent("coder")(lambda turn: "yes")
app.agent("writer", lane="agent")(lambda turn: "yes")
"""


def test_status_counts_what_waits_and_names_who_works(shell: Shell) -> None:
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


def test_a_watch_prints_a_line_of_json_per_look_with_rates_and_ends_well(shell: Shell) -> None:
    with shell.running("status", "--watch", "--json", "--every", "50ms") as watch:
        assert json.loads(watch.ready)["queues"][0]["arriving"] is None
        assert json.loads(watch.stdout.readline())["queues"][0]["arriving"] == 0
        shell.out("send", "hello")
        looks = map(json.loads, watch.stdout)
        assert eventually(lambda: next(looks)["queues"][0]["arriving"]) > 0
        watch.signal(signal.SIGINT)
        assert watch.end() == 0
        assert watch.log == ""


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


def test_agents_are_those_that_a_process_announced(shell: Shell) -> None:
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
