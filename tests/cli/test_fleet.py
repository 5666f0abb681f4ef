"""Several processes with different apps on one database, as their operator sees them."""

from __future__ import annotations

import json

from tests.cli.shell import Shell, eventually

APP = """
from holdfast import AgentHarness

app = AgentHarness()

@app.agent("{agent}")
async def answer(turn):
    return "{agent}: " + turn.text
"""

TOML = """
[agents.later]
kind = "echo"
"""


def write_apps(shell: Shell) -> None:
    for agent in ("coder", "writer"):
        shell.write(f"{agent}_app.py", APP.format(agent=agent))


def test_agents_of_two_apps_are_both_known_until_one_ends(shell: Shell) -> None:
    write_apps(shell)
    with shell.running("work", "--app", "coder_app:app"):
        with shell.running("work", "--app", "writer_app:app") as writer:
            assert shell.out("send", "hello", "--agent", "coder", "--wait") == "coder: hello\n"
            assert shell.out("send", "@writer hello", "--wait") == "writer: hello\n"
            assert "two default agents: coder holds, not writer" in shell.out("doctor")
            writer.signal()
            assert writer.end() == 0
        assert "no agent named 'writer'" in shell.refused("send", "hello", "--agent", "writer")
        assert shell.out("send", "hello", "--agent", "coder", "--wait") == "coder: hello\n"


def test_a_message_for_an_agent_that_nobody_serves_waits_and_is_shown(shell: Shell) -> None:
    write_apps(shell)
    shell.write("front.toml", TOML)
    with shell.running("work", "--app", "coder_app:app"):
        sent = shell.run("send", "hello", "--agent", "later", "--config", "front.toml")
        assert sent.returncode == 0
        assert (
            sent.stderr
            == "holdfast: no running process serves later; the message waits until one does\n"
        )
        assert "waiting for a server: later (1)" in shell.out("status")
        assert json.loads(shell.out("status", "--json"))["unserved"] == {"later": 1}
        agents = json.loads(shell.out("agents", "--json", "--config", "front.toml"))
        [later] = [one for one in agents if not one["processes"]]
        assert (later["agent"], later["ready"]) == ("later", 1)
        assert "no running process serves later" in shell.out("doctor", "--config", "front.toml")
        with shell.running("work", "--config", "front.toml"):
            eventually(lambda: json.loads(shell.out("status", "--json"))["unserved"] == {})
