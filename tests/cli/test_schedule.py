"""`holdfast schedule`: add, list, pause, resume, run, remove, and the runs."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def coder(shell: Shell) -> Shell:
    shell.write("holdfast.toml", '[agents.coder]\nkind = "echo"\n')
    return shell


def test_a_schedule_is_added_listed_paused_resumed_and_removed(coder: Shell) -> None:
    assert "no schedule yet" in coder.out("schedule", "list")
    line = coder.out(
        *("schedule", "add", "0 9 * * mon-fri", "prepare the stand-up", "--agent", "coder"),
        *("--zone", "Europe/Berlin", "--to", "slack:C123", "--missed", "all"),
    )
    [listed] = coder.json("schedule", "list")
    assert line.startswith(f"{listed['id']} runs next at 20")
    expected = {
        "agent": "coder",
        "timing": "0 9 * * mon-fri",
        "zone": "Europe/Berlin",
        "message": "prepare the stand-up",
        "to": "slack:C123",
        "missed": "all",
        "state": "waiting",
        "source": "person",
        "lastAt": None,
    }
    assert listed | expected == listed
    assert listed["nextAt"] > listed["createdAt"] > 1_600_000_000_000, "milliseconds"
    assert coder.out("schedule", "pause", listed["id"]) == f"paused {listed['id']}\n"
    assert coder.json("schedule", "list")[0]["state"] == "paused"
    assert "runs next at" in coder.out("schedule", "resume", listed["id"])
    assert coder.json("schedule", "list") == [listed]
    assert "stand-up" in coder.out("schedule", "list")
    assert coder.out("schedule", "remove", listed["id"]) == f"removed {listed['id']}\n"
    assert coder.json("schedule", "list") == []


def test_run_now_puts_a_message_that_the_runs_show(coder: Shell) -> None:
    added = coder.json("schedule", "add", "2099-01-31T09:00", "look at the build")
    assert (added["agent"], added["to"]) == ("coder", None)
    message_id = coder.out("schedule", "run", added["id"]).strip()
    assert message_id.startswith(f"schedule_{added['id']}_")
    [run] = coder.json("schedule", "history", added["id"])
    assert (run["messageId"], run["status"], run["answer"]) == (message_id, "pending", None)
    assert coder.json("schedule", "list")[0]["nextAt"] == added["nextAt"]


def test_wrong_usage_is_one_line_and_exit_code_2(coder: Shell) -> None:
    add = ("schedule", "add")
    assert "a cron expression like" in coder.refused(*add, "soon", "x", code=2)
    assert "no time zone" in coder.refused(*add, "0 9 * * *", "x", "--zone", "Mars", code=2)
    assert "is over" in coder.refused(*add, "2020-01-01T09:00", "x", code=2)
    assert "CHANNEL:CONVERSATION" in coder.refused(*add, "0 9 * * *", "x", "--to", "C1", code=2)
    assert "missed" in coder.refused(*add, "0 9 * * *", "x", "--missed", "never", code=2)
    assert "no agent named 'nobody'" in coder.refused(*add, "0 9 * * *", "x", "--agent", "nobody")
    for command in ("pause", "resume", "run", "remove", "history"):
        assert "there is no schedule 'nothing'" in coder.refused("schedule", command, "nothing")


def test_a_wrong_schedule_in_the_settings_is_named_with_its_line(shell: Shell) -> None:
    table = '[agents.coder]\nkind = "echo"\n[[schedules]]\nid = "standup"\nmessage = "x"\n'
    shell.write("holdfast.toml", f'{table}timing = "soon"\n')
    assert "a cron expression like" in shell.refused("up")
    shell.write("holdfast.toml", f'{table}timing = "0 9 * * *"\nagent = "writer"\n')
    assert "there is no agent named 'writer'" in shell.refused("up")
