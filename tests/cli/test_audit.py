"""`holdfast audit`: actions of commands are recorded with the login name, and listed."""

from __future__ import annotations

import os
import pwd

from tests.cli.shell import Shell
from tests.cli.test_dead import some_dead

ME = f"cli:{pwd.getpwuid(os.getuid()).pw_name}"


def actions(shell: Shell, *options: str) -> list[tuple[str, str, str]]:
    return [(one["actor"], one["action"], one["subject"]) for one in shell.json("audit", *options)]


def test_actions_of_commands_are_recorded_with_the_login_name(shell: Shell, url: str) -> None:
    first, second, *_, done = some_dead(url)
    shell.out("dead", "retry", str(first))
    shell.out("dead", "discard", str(second))
    shell.out("replay", str(done))
    shell.out("memory", "forget", "default:USER:ann", "--yes")
    [forgot, *others] = actions(shell)
    assert forgot[:2] == (ME, "forgot")
    assert forgot[2].startswith("person:")
    assert others == [
        (ME, "replayed", f"event:{done}"),
        (ME, "discarded", f"event:{second}"),
        (ME, "retried", f"event:{first}"),
    ]


def test_the_log_is_filtered_and_shown_as_a_table(shell: Shell, url: str) -> None:
    first, second, *_ = some_dead(url)
    shell.out("dead", "retry", str(first))
    shell.out("dead", "discard", str(second))
    assert actions(shell, "--action", "retried") == [(ME, "retried", f"event:{first}")]
    assert actions(shell, "--limit", "1") == [(ME, "discarded", f"event:{second}")]
    assert actions(shell, "--actor", "cli:nobody-else") == []
    assert (
        len(actions(shell, "--since", "1h"))
        == len(actions(shell, "--since", "2020-01-01T00:00"))
        == 2
    )
    assert actions(shell, "--since", "2199-01-01") == []
    assert f"event:{first}" in shell.out("audit")
    assert "no such entry" in shell.out("audit", "--action", "rotated")


def test_a_wrong_filter_is_wrong_usage(shell: Shell) -> None:
    assert "known are: retried, discarded" in shell.refused("audit", "--action", "danced", code=2)
    assert "neither a duration" in shell.refused("audit", "--since", "lately", code=2)
