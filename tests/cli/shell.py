"""Run holdfast as a person does: in its own folder, without settings of the machine."""

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
TIMEOUT = 60.0

T = TypeVar("T")
Process = ForkedProcess | subprocess.Popen[bytes]


def eventually(look: Callable[[], T]) -> T:
    """Call `look` until it returns something true, and return that; fail after a minute."""
    give_up_at = time.monotonic() + TIMEOUT
    while not (value := look()):
        assert time.monotonic() < give_up_at, "timed out"
        time.sleep(0.02)
    return value


class Running:
    """A running command that has printed its first line."""

    def __init__(self, process: Process, stdout: IO[str], log: Path) -> None:
        self.process = process
        self.stdout = stdout
        self._log = log
        self.ready = stdout.readline()

    @property
    def log(self) -> str:
        """The text on stderr so far."""
        return self._log.read_text()

    @property
    def address(self) -> str:
        return next(word.rstrip(";") for word in self.ready.split() if word.startswith("http://"))

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(TIMEOUT)


class Shell:
    """A folder with a home in it, and the database of every command.

    `cold`: each start imports everything, as a person's does."""

    def __init__(self, folder: Path, database: str | None = None, *, cold: bool = False) -> None:
        self.folder = folder
        self.cold = cold
        others = ("HOLDFAST_", "PG", "DATABASE_URL")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        # A user can import the package and nothing else of this project.
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
                process.wait(TIMEOUT)
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
        """Return the output of a command that must succeed with nothing on stderr."""
        done = self.run(*arguments, **variables)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.out(*arguments, "--json"))

    def refused(self, *arguments: str, code: int = 1, **variables: str) -> str:
        """Return the one line on stderr of a command that must print nothing else and fail."""
        done = self.run(*arguments, **variables)
        assert (done.returncode, done.stdout) == (code, ""), done
        [line] = done.stderr.splitlines()
        return line

    @contextmanager
    def running(self, *arguments: str, **variables: str) -> Iterator[Running]:
        """Run a command in the background; kill it at the end of the block."""
        log = self.folder / f"{arguments[0]}-{time.monotonic_ns()}.log"
        reading, writing = os.pipe()
        with open(reading) as stdout:
            with open(os.devnull) as stdin, open(writing, "wb") as output, log.open("w") as stderr:
                process = self._start(arguments, variables, stdin, output, stderr)
            try:
                yield Running(process, stdout, log)
            finally:
                process.kill()
                process.wait(TIMEOUT)
