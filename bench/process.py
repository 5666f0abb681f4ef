"""A measured `holdfast` process, seen from outside."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

ROOT = Path(__file__).parents[1]
TIMEOUT_SECONDS = 30
MEGABYTE = 1_000_000
FOREIGN = ("HOLDFAST_", "LOGFIRE_", "OTEL_")


class Running:
    """A process that is ready, and the seconds that its start took."""

    def __init__(
        self, process: subprocess.Popen[str], home: Path, ready_after: float, line: str
    ) -> None:
        self._process = process
        self._home = home
        self._line = line
        self.ready_after = ready_after

    @property
    def address(self) -> str:
        """Base URL of its HTTP server."""
        return next(word.rstrip(";") for word in self._line.split() if word.startswith("http://"))

    def token(self, role: str) -> str:
        """Return the bootstrap token of a role."""
        return (self._home / f"token-{role}").read_text().strip()

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()
        self._process.wait()

    def resident(self) -> int:
        """Return its resident bytes."""
        statm = Path(f"/proc/{self._process.pid}/statm")
        if statm.exists():
            return int(statm.read_text().split()[1]) * resource.getpagesize()
        return int(self._ask_ps("rss=")) * 1024

    def busy(self) -> float:
        """Return the seconds of processor time since the start; `ps` gives whole seconds only."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        if stat.exists():
            # The program's name, in brackets, may contain anything.
            user, system = stat.read_text().rpartition(")")[2].split()[11:13]
            return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        parts = re.split("[-:]", self._ask_ps("time=").strip())
        return sum(
            float(part) * unit
            for part, unit in zip(reversed(parts), (1, 60, 3600, 86_400), strict=False)
        )

    def _ask_ps(self, field: str) -> str:
        command = ["ps", "-o", field, "-p", str(self._process.pid)]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


@contextmanager
def run_process(
    command: str, url: str, *options: str, collector: str | None = None, **variables: str
) -> Iterator[Running]:
    """Start `holdfast work` or `up` in a folder of its own; stop it after the block."""
    with TemporaryDirectory(prefix="holdfast-bench-") as home:
        words = _command(command, url, home, *options)
        with run_command(words, Path(home), _environment(collector) | variables) as running:
            yield running


@contextmanager
def run_command(
    words: Sequence[str], home: Path, environment: Mapping[str, str]
) -> Iterator[Running]:
    """Start a program that prints a line with "is ready"; stop it after the block."""
    with Path(home, "stderr").open("w+") as output:
        begun = perf_counter()
        process = subprocess.Popen(
            words,
            cwd=home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
        try:
            line = _wait_ready(process, Path(output.name))
            yield Running(process, home, perf_counter() - begun, line)
        finally:
            _stop(process)


def run(command: str, url: str, *options: str) -> str:
    """Run a command to its end. Returns its output."""
    with TemporaryDirectory(prefix="holdfast-bench-") as home:
        words = _command(command, url, home, *options)
        return subprocess.run(
            words,
            cwd=home,
            env=_environment(),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=TIMEOUT_SECONDS,
        ).stdout


def _command(command: str, url: str, home: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", command, "--database", url, "--home", home, *options]


def _environment(collector: str | None = None) -> dict[str, str]:
    """Return an environment with default settings, the collector of spans, and our import path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    own = {"PYTHONPATH": str(ROOT)}
    return kept | own | ({"OTEL_EXPORTER_OTLP_ENDPOINT": collector} if collector else {})


def _wait_ready(process: subprocess.Popen[str], output: Path) -> str:
    """Wait for the line that says "ready"."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert " is ready" in line, f"{line}{output.read_text()}"
    return line


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
