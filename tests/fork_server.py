"""Run `python -m …` as a fork of a process that has imported everything: a start takes no imports.

The fork server gets requests over a socket. For each it forks the command, and reports its process
id and exit code over a pipe."""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Self

from holdfast.cli import command_tree

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
        self._reports = open(reports, "rb", buffering=0)  # noqa: SIM115 - closed at the end
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
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        self._reports.close()

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


PRELOADED = (
    "holdfast.agents.command",
    "holdfast.agents.echo",
    "holdfast.api.server",
    "holdfast.app",
    "holdfast.cli.agent_builder",
    "holdfast.migrations.sqlite",
    "holdfast.store.postgres.store",
    "holdfast.store.sqlite.memory",
    "holdfast.store.sqlite.store",
    "rich.console",
    "rich.table",
    "uvicorn.lifespan.off",
)
"""Modules that commands import late. None of them may start a thread."""


class Server:
    """Forks commands, and reports id and exit code of each to the test that asked."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._ends = selectors.DefaultSelector()
        self._ends.register(requests, selectors.EVENT_READ)

    def serve(self) -> dict[str, Any] | None:
        """Return the request in the child that is to run it, and None when no more can come."""
        while True:
            for key, _ in self._ends.select():
                if key.fileobj is not self._requests:
                    self._report_end(key.fd, *key.data)
                elif (asked := self._receive()) is None:
                    return None
                elif self._fork(*asked):
                    return asked[0]

    def _receive(self) -> tuple[dict[str, Any], list[int]] | None:
        message, files, _, _ = socket.recv_fds(self._requests, MAX_REQUEST_BYTES, 4)
        if not message:
            return None
        request = json.loads(message)
        for module in (request["module"], *request["preload"]):
            importlib.import_module(module)
        return request, files

    def _fork(self, request: dict[str, Any], files: list[int]) -> bool:
        """Return whether this is the child."""
        *standard, report_to = files
        if (command := os.fork()) == 0:
            os.close(report_to)
            self._become_command(standard)
            return True
        for file in standard:
            os.close(file)
        os.write(report_to, f"{command}\n".encode())
        self._ends.register(os.pidfd_open(command), selectors.EVENT_READ, (command, report_to))
        return False

    def _report_end(self, handle: int, command: int, report_to: int) -> None:
        _, status = os.waitpid(command, 0)
        with suppress(BrokenPipeError):  # the test has ended
            os.write(report_to, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        self._ends.unregister(handle)
        os.close(report_to)
        os.close(handle)

    def _become_command(self, standard: list[int]) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in enumerate(standard):
            os.dup2(file, number)
            os.close(file)
        for key in self._ends.get_map().values():
            if key.data is not None:
                os.close(key.fd)
                os.close(key.data[1])
        self._requests.close()
        self._ends.close()


def main() -> None:
    before = set(os.environ)
    for name in PRELOADED:
        importlib.import_module(name)
    command_tree()
    added = {name: value for name, value in os.environ.items() if name not in before}
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if request is None:
        return
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(added | request["environment"])
    sys.argv[1:] = request["arguments"]
    # Run it as the main module, although the server has imported it.
    if request["module"] != "holdfast":
        del sys.modules[request["module"]]
    _run(request["module"])


def _run(module: str) -> None:
    """Run a module and end the process.

    Taking the interpreter down would touch and so copy all memory that it shares with the server:
    40 ms, as long as a short command. So this runs what is registered for the end, and ends."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
