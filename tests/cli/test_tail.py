"""`holdfast tail` and `holdfast stop`."""

from __future__ import annotations

import json
import signal

from tests.cli.shell import Shell, eventually
from tests.cli.test_up import APP


def test_tail_prints_activity_as_it_happens(shell: Shell) -> None:
    shell.write("my_app.py", APP)
    with shell.running("work", "--app", "my_app:app"):
        output, errors = shell.folder / "output", shell.folder / "errors"
        with (
            shell.write("nothing", "").open() as given,
            output.open("w") as out,
            errors.open("w") as err,
        ):
            tail = shell._start(("tail", "--json", "--agent", "polite"), {}, given, out, err)
            try:
                # Workers start to record within two seconds.
                eventually(
                    lambda: (
                        shell.out("send", "hello", "--wait")
                        and "chain_step_done" in output.read_text()
                    )
                )
            finally:
                tail.send_signal(signal.SIGINT)
            assert tail.wait(30) == 0
        frames = [json.loads(line) for line in output.read_text().splitlines()]
    assert {"message_received", "chain_step_done"} <= {frame["type"] for frame in frames}
    assert {frame["agent"] for frame in frames} == {"polite"}


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
