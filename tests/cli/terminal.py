"""A command at a terminal: a person types, and sees what it prints."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.cli.shell import TIMEOUT, Shell, eventually


class Terminal:
    """The terminal of a running command."""

    def __init__(self, leader: int, process: subprocess.Popen[bytes]) -> None:
        self._leader = leader
        self.process = process
        self.shown = ""
        """Everything that was printed, with the ends of lines as programs write them."""

    def read_until(self, text: str) -> None:
        """Read until a text is shown."""
        eventually(lambda: self._sees(text))

    def type(self, text: str) -> None:
        os.write(self._leader, text.encode())

    def end(self) -> int:
        """Wait for the end of the command. Returns its exit code."""
        code = self.process.wait(TIMEOUT)
        self._sees("")
        return code

    def _sees(self, text: str) -> bool:
        # The end of the command closes its side, which is an error on ours.
        with suppress(OSError):
            new = b"" if text and text in self.shown else os.read(self._leader, 65_536)
            self.shown += new.decode(errors="replace").replace("\r\n", "\n")
        return text in self.shown


@contextmanager
def at_terminal(shell: Shell, *arguments: str, **variables: str) -> Iterator[Terminal]:
    """Run a command at a terminal of its own; kill it at the end of the block."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *arguments],
        cwd=shell.folder,
        env=shell.environment | {"TERM": "xterm"} | variables,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    try:
        yield Terminal(leader, process)
    finally:
        process.kill()
        process.wait(TIMEOUT)
        os.close(leader)
