"""Run `python -m …` as a fork of a process that has imported everything: a start takes no imports.

The fork server gets requests over a socket. For each it forks a keeper, which forks the command,
waits for it and reports its process id and exit code over a pipe."""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Self

ROOT = Path(__file__).parents[1]
MAX_REQUEST_BYTES = 1024 * 1024


class ForkedProcess:
    """A process of the fork server, with the methods of Popen that tests use.

    The caller gives files for its input and output."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        stdin: IO[Any],
        stdout: IO[Any],
        stderr: IO[Any] | int = 2,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        preload: Sequence[str] = (),
    ) -> None:
        """`preload` names modules that the fork server imports, once for all its processes."""
        environment = dict(os.environ if env is None else env)
        request = {
            "module": module,
            "preload": preload,
            "arguments": arguments,
            "cwd": str(cwd),
            "environment": environment,
        }
        reports, report_to = os.pipe()
        error_file = stderr if isinstance(stderr, int) else stderr.fileno()
        socket.send_fds(
            _fork_server(),
            [json.dumps(request).encode()],
            [stdin.fileno(), stdout.fileno(), error_file, report_to],
        )
        os.close(report_to)
        # Unbuffered, since `poll` asks the system whether there is something to read.
        self._reports = open(reports, "rb", buffering=0)  # noqa: SIM115 - closed when it ended
        self.pid = int(self._reports.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._reports], [], [], 0)[0]:
            self._read_exit_code()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._reports], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self.returncode if self.returncode is not None else self._read_exit_code()

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read_exit_code(self) -> int:
        with self._reports:
            self.returncode = int(self._reports.readline())
        return self.returncode


class PipedProcess(ForkedProcess):
    """A process that exchanges lines with the test; killed at the end of the block."""

    def __init__(self, module: str, *arguments: str, preload: Sequence[str] = ()) -> None:
        theirs, ours = os.pipe()
        self.stdin = open(ours, "w")  # noqa: SIM115 - closed at the end of the block
        ours, output = os.pipe()
        self.stdout = open(ours)  # noqa: SIM115
        with open(theirs) as stdin, open(output, "w") as stdout:
            super().__init__(module, *arguments, stdin=stdin, stdout=stdout, preload=preload)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self.wait()
        self.stdout.close()
        with suppress(BrokenPipeError):
            self.stdin.close()

    def read_line(self) -> str:
        """Return the next line of its output."""
        return self.stdout.readline().strip()

    def write_line(self, line: str) -> None:
        print(line, file=self.stdin, flush=True)


@cache
def _fork_server() -> socket.socket:
    """Start the fork server. Returns the socket for requests; the server ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
            cwd="/",
            # A clean environment, without settings of the test that happens to come first.
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
            pass_fds=[theirs.fileno()],
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def _preload() -> tuple[ModuleType, ...]:
    """Import the modules that commands import late. None of them may start a thread."""
    from holdfast import app, cli
    from holdfast.agents import echo
    from holdfast.api import server
    from holdfast.cli import agent_builder
    from holdfast.migrations import sqlite
    from holdfast.store.postgres import store
    from holdfast.store.sqlite import memory

    return agent_builder, app, cli, echo, memory, server, sqlite, store


def main() -> None:
    before = set(os.environ)
    _preload()
    added = {name: value for name, value in os.environ.items() if name not in before}
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The system reaps the keepers.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    requests = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, files, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 4)
        if not message:
            return
        request = json.loads(message)
        for module in (request["module"], *request["preload"]):
            importlib.import_module(module)
        if os.fork() == 0:
            requests.close()
            break
        for file in files:
            os.close(file)
    _fork_command(files)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(added | request["environment"])
    sys.argv[1:] = request["arguments"]
    # Run it as the main module, although the server has imported it.
    if request["module"] != "holdfast":
        del sys.modules[request["module"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def _fork_command(files: list[int]) -> None:
    """Fork once more and return in the child, which is the command.

    The parent stays as the keeper and reports how the command ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    *standard, report_to = files
    if command := os.fork():
        for file in standard:
            os.close(file)
        os.write(report_to, f"{command}\n".encode())
        _, status = os.waitpid(command, 0)
        os.write(report_to, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    os.close(report_to)
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)


if __name__ == "__main__":
    main()
