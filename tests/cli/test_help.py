"""Help: every command has it, it is fast, and the reference page lists all commands."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.cli import command_tree
from tests.cli.shell import ROOT, Shell


def commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command with its path of words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(commands(command_tree()))


def options(command: Any) -> list[str]:
    return [
        option
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    ]


def test_the_commands_of_the_contract_are_there() -> None:
    single = {
        "up",
        "work",
        "serve",
        "migrate",
        "init",
        "send",
        "status",
        "agents",
        "history",
        "replay",
        "doctor",
        "chat",
        "tail",
        "stop",
    }
    dead = {("dead", verb) for verb in ("list", "show", "retry", "discard")}
    assert set(COMMANDS) >= {(name,) for name in single} | dead


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_that_names_its_options(alone: Shell, path: tuple[str, ...]) -> None:
    text = alone.out(*path, "--help")
    for option in options(COMMANDS[path]):
        assert option in text


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_page_of_commands_has_every_command_and_option(path: tuple[str, ...]) -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert f"holdfast {' '.join(path)}" in page
    for option in options(COMMANDS[path]):
        assert f"`{option}" in page, option


def test_without_a_command_there_is_help(alone: Shell) -> None:
    assert "Usage: holdfast" in alone.out()


def test_help_takes_less_than_300_milliseconds_of_processor_time(cold: Shell) -> None:
    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        cold.out("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # The best of several: the first may have to compile, and others may share the core.
    assert any(once() < 0.3 for _ in range(10))


def test_h_is_help_everywhere(alone: Shell) -> None:
    assert alone.out("-h") == alone.out("--help")
    assert alone.out("dead", "list", "-h") == alone.out("dead", "list", "--help")


def test_commands_are_grouped_and_examples_are_given(alone: Shell) -> None:
    text = alone.out("--help")
    for title in ("Run:", "Talk:", "Look:", "Mend:", "Set up:", "Examples:"):
        assert f"{title}\n" in text
    assert "Further:" not in text, "a new command belongs into a group of holdfast/cli/help.py"


def test_an_option_before_the_command_is_refused_with_a_hint(alone: Shell) -> None:
    refusal = alone.refused("--database", "sqlite:///a.db", "status", code=2)
    assert (
        refusal == "holdfast: options come after the command, as in `holdfast status --database …`"
    )
    assert "No such option: --nope" in alone.refused("--nope", "status", code=2)


def test_a_shell_can_complete_commands(cold: Shell) -> None:
    asked = {"_HOLDFAST_COMPLETE": "complete_bash", "COMP_WORDS": "holdfast dea", "COMP_CWORD": "1"}
    assert cold.run(**asked).stdout.split() == ["dead"]
