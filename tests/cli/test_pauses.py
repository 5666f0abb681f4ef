"""`holdfast pause` and `resume`, where a pause shows, and that a running process obeys it."""

from __future__ import annotations

from tests.cli.shell import Shell, eventually


def test_a_pause_is_made_shown_and_ended(shell: Shell) -> None:
    shell.out("pause", "queue", "inbox", "--reason", "moving house")

    assert "moving house" in shell.out("pause")
    [pause] = shell.json("pause")
    assert (pause["kind"], pause["name"], pause["reason"]) == ("queue", "inbox", "moving house")
    assert pause["paused_by"].startswith("cli:")
    status = " ".join(shell.out("status").split())
    assert "queue inbox is paused" in status
    assert "`holdfast resume queue inbox` ends it" in status
    assert shell.json("status")["paused"][0]["name"] == "inbox"
    assert shell.out("resume", "queue", "inbox") == "resumed queue inbox\n"
    assert shell.out("pause") == "nothing is paused\n"


def test_wrong_pauses_say_what_to_do(shell: Shell) -> None:
    assert "there is no agent 'nobody'" in shell.refused("pause", "agent", "nobody")
    assert "nothing to pause" in shell.refused("pause", "channel", "api")
    assert "give agent, channel or queue" in shell.refused("pause", "process", "x", code=2)
    assert "`holdfast pause agent coder`" in shell.refused("pause", "agent", code=2)
    assert "'list' cannot be paused" in shell.refused("pause", "list", code=2)
    assert "is not paused" in shell.refused("resume", "agent", "coder")


def test_a_running_process_obeys_a_pause_also_after_a_restart(shell: Shell) -> None:
    with shell.running("work"):
        [agent] = eventually(lambda: shell.json("agents"))
        shell.out("pause", "agent", agent["agent"])
    with shell.running("work"):
        sent = shell.run("send", "hello")
        assert "is paused; the message waits" in sent.stderr
        shell.out("pause", "queue", "memory")
        # The process runs, so it would have taken the message by now if it were not paused.
        eventually(lambda: shell.json("status")["processes"])
        assert shell.json("history", "--queue", "inbox") == []
        shell.out("resume", "agent", agent["agent"])
        [done] = eventually(lambda: shell.json("history", "--queue", "inbox"))
        assert done["outcome"] == "completed"
