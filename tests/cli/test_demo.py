"""`holdfast demo crash` at a terminal opens its page in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Shell, eventually
from tests.cli.terminal import at_terminal

BROWSER = """#!/bin/sh
echo "$1" > opened.new && mv opened.new opened
"""


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """A folder with a program that notes the page it should open."""
    shell = Shell(tmp_path)
    shell.write("browser", BROWSER).chmod(0o755)
    shell.environment["BROWSER"] = f"{tmp_path}/browser %s &"
    return shell


def test_a_terminal_opens_the_page_in_a_browser(alone: Shell) -> None:
    with at_terminal(alone, "demo", "crash", "--port", "0") as terminal:
        terminal.read_until("/demo\n")
        address = terminal.shown.split()[-1]
        eventually((alone.folder / "opened").exists)
    assert (alone.folder / "opened").read_text().strip() == address


def test_no_browser_is_opened_if_nobody_wants_it(alone: Shell) -> None:
    with at_terminal(alone, "demo", "crash", "--port", "0", "--no-browser") as terminal:
        terminal.read_until("/demo\n")
        terminal.process.terminate()
        assert terminal.end() == 0
    assert not (alone.folder / "opened").exists()


def test_a_text_browser_does_not_take_the_terminal(alone: Shell) -> None:
    alone.environment["BROWSER"] = f"{alone.folder}/browser %s"
    with at_terminal(alone, "demo", "crash", "--port", "0") as terminal:
        terminal.read_until("/demo\n")
        terminal.process.terminate()
        assert terminal.end() == 0
    assert not (alone.folder / "opened").exists()


def test_without_a_terminal_no_browser_is_opened(alone: Shell) -> None:
    with alone.running("demo", "crash", "--port", "0") as running:
        assert "ready" in running.ready
        running.signal()
        assert running.end() == 0
    assert not (alone.folder / "opened").exists()
