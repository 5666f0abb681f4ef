"""Runs holdfast as a person does: processes in a folder of their own, with no settings of the machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, TypeVar

from tests.fork_server import ForkedProcess

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0

T = TypeVar("T")
Process = ForkedProcess | subprocess.Popen[bytes]


def eventually(look: Callable[[], T]) -> T:
    """What a look finds once it finds something; a test that waits in vain fails."""
    give_up_at = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.02)
    return found


class Running:
    """A command that runs on; its first line is there."""

    def __init__(self, process: Process, stdout: IO[str], log: Path) -> None:
        self.process = process
        self.stdout = stdout
        self._log = log
        self.ready = stdout.readline()

    @property
    def log(self) -> str:
        """What it wrote to stderr."""
        return self._log.read_text()

    @property
    def address(self) -> str:
        return next(word.rstrip(";") for word in self.ready.split() if word.startswith("http://"))

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(PATIENCE)


class Shell:
    """A folder, the home in it, and the database that every command is given.

    `cold`: a start imports all it needs, as a person's does."""

    def __init__(self, folder: Path, database: str | None = None, *, cold: bool = False) -> None:
        self.folder = folder
        self.cold = cold
        others = ("HOLDFAST_", "PG", "DATABASE_URL")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        # Beside the project's folder nothing may be importable that a user would not have.
        self.environment = kept | {
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
        }
        if database is not None:
            self.environment["HOLDFAST_DATABASE"] = database

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def run(
        self, *arguments: str, given: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        with (
            TemporaryFile("w+") as stdin,
            TemporaryFile("w+") as stdout,
            TemporaryFile("w+") as stderr,
        ):
            stdin.write(given)
            stdin.seek(0)
            process = self._start(arguments, variables, stdin, stdout, stderr)
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()
            stdout.seek(0)
            stderr.seek(0)
            return subprocess.CompletedProcess(
                arguments, process.wait(), stdout.read(), stderr.read()
            )

    def _start(
        self,
        arguments: Sequence[str],
        variables: dict[str, str],
        stdin: IO[Any],
        stdout: IO[Any],
        stderr: IO[Any],
    ) -> Process:
        how: dict[str, Any] = {"cwd": self.folder, "env": self.environment | variables}
        how |= {"stdin": stdin, "stdout": stdout, "stderr": stderr}
        if self.cold:
            return subprocess.Popen([sys.executable, "-m", "holdfast", *arguments], **how)
        return ForkedProcess("holdfast", *arguments, **how)

    def out(self, *arguments: str, **variables: str) -> str:
        """What a command prints that ends well and has nothing to complain of."""
        done = self.run(*arguments, **variables)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.out(*arguments, "--json"))

    def refused(self, *arguments: str, code: int = 1, **variables: str) -> str:
        """The one line on stderr of a command that prints nothing else and ends with `code`."""
        done = self.run(*arguments, **variables)
        assert (done.returncode, done.stdout) == (code, ""), done
        [line] = done.stderr.splitlines()
        return line

    @contextmanager
    def running(self, *arguments: str, **variables: str) -> Iterator[Running]:
        """A command that runs on; it is gone after the block whatever happens in it."""
        log = self.folder / f"{arguments[0]}-{time.monotonic_ns()}.log"
        reading, writing = os.pipe()
        with open(reading) as stdout:
            with open(os.devnull) as stdin, open(writing, "wb") as output, log.open("w") as stderr:
                process = self._start(arguments, variables, stdin, output, stderr)
            try:
                yield Running(process, stdout, log)
            finally:
                process.kill()
                process.wait(PATIENCE)
