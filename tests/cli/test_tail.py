"""`tail` and `cancel`: what happens now, and a way to stop it."""

from __future__ import annotations

import json
import signal

from tests.cli.shell import Shell, eventually
from tests.cli.test_up import APP


def test_tail_prints_what_happens_as_it_happens(shell: Shell) -> None:
    shell.write("my_app.py", APP)
    with shell.running("work", "--app", "my_app:app"):
        shown, told = shell.folder / "shown", shell.folder / "told"
        with (
            shell.write("nothing", "").open() as given,
            shown.open("w") as out,
            told.open("w") as err,
        ):
            tail = shell._start(("tail", "--json", "--agent", "polite"), {}, given, out, err)
            try:
                # Workers notice within two seconds that somebody reads.
                eventually(
                    lambda: (
                        shell.out("send", "hello", "--wait")
                        and "chain_step_done" in shown.read_text()
                    )
                )
            finally:
                tail.send_signal(signal.SIGINT)
            assert tail.wait(30) == 0
        frames = [json.loads(line) for line in shown.read_text().splitlines()]
    assert {"message_received", "chain_step_done"} <= {frame["type"] for frame in frames}
    assert {frame["agent"] for frame in frames} == {"polite"}


def test_cancel_stops_a_turn_that_runs_and_says_how_to_bring_it_back(shell: Shell) -> None:
    shell.write("my_app.py", APP)
    with shell.running("work", "--app", "my_app:app"):
        id_ = shell.json("send", "work", "--agent", "slow")["id"]
        eventually((shell.folder / "started").exists)
        assert (
            shell.out("cancel", str(id_))
            == f"cancelled {id_}; `holdfast dead retry {id_}` brings it back\n"
        )
        [letter] = shell.json("dead", "list")
        assert (letter["id"], letter["outcome"]) == (id_, "cancelled")
        assert "no turn of event 999999 runs now: there is no such live event" in shell.refused(
            "cancel", "999999"
        )
