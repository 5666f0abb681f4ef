"""`python -m …` as a fork of a process that has imported everything before: a start costs no half second of imports."""

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
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Self

ROOT = Path(__file__).parents[1]
LONGEST = 1024 * 1024
# What a command needs beside what its own module imports; nothing that starts a thread.
IMPORTED = (
    "holdfast.cli",
    "holdfast.app",
    "holdfast.api.server",
    "holdfast.agents.echo",
    "holdfast.cli.agent_builder",
    "holdfast.migrations.sqlite",
    "holdfast.store.postgres.store",
    "holdfast.store.sqlite.knowledge",
    "holdfast.store.sqlite.observations",
)


class ForkedProcess:
    """A process of the nursery, with what tests use of a Popen; files are given for its input and output."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        stdin: IO[Any],
        stdout: IO[Any],
        stderr: IO[Any] | int = 2,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
    ) -> None:
        environment = dict(os.environ if env is None else env)
        order = {
            "module": module,
            "arguments": arguments,
            "cwd": str(cwd),
            "environment": environment,
        }
        told, telling = os.pipe()
        complaints = stderr if isinstance(stderr, int) else stderr.fileno()
        socket.send_fds(
            _nursery(),
            [json.dumps(order).encode()],
            [stdin.fileno(), stdout.fileno(), complaints, telling],
        )
        os.close(telling)
        # Unbuffered, as `poll` looks for what is yet to be read.
        self._told = open(told, "rb", buffering=0)  # noqa: SIM115 - closed when it ended
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._hear()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._told], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self.returncode if self.returncode is not None else self._hear()

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _hear(self) -> int:
        with self._told:
            self.returncode = int(self._told.readline())
        return self.returncode


class PipedProcess(ForkedProcess):
    """One that is spoken with, line by line; killed at the end of the block."""

    def __init__(self, module: str, *arguments: str) -> None:
        theirs, ours = os.pipe()
        self.stdin = open(ours, "w")  # noqa: SIM115 - closed at the end of the block
        ours, output = os.pipe()
        self.stdout = open(ours)  # noqa: SIM115
        with open(theirs) as stdin, open(output, "w") as stdout:
            super().__init__(module, *arguments, stdin=stdin, stdout=stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self.wait()
        self.stdout.close()
        with suppress(BrokenPipeError):
            self.stdin.close()

    def hear(self) -> str:
        """Its next line."""
        return self.stdout.readline().strip()

    def say(self, line: str) -> None:
        print(line, file=self.stdin, flush=True)


@cache
def _nursery() -> socket.socket:
    """Where orders go; the process ends with ours."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
            cwd="/",
            # Nothing of the test that happens to come first: processes are known by their environment, too.
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
            pass_fds=[theirs.fileno()],
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def main() -> None:
    before = set(os.environ)
    for module in IMPORTED:
        importlib.import_module(module)
    added = {name: value for name, value in os.environ.items() if name not in before}
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Keepers are buried by the system.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    orders = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, files, _, _ = socket.recv_fds(orders, LONGEST, 4)
        if not message:
            return
        order = json.loads(message)
        importlib.import_module(order["module"])
        if os.fork() == 0:
            orders.close()
            break
        for file in files:
            os.close(file)
    _keep(files)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(added | order["environment"])
    sys.argv[1:] = order["arguments"]
    # It is run as the main module, beside what it imports; its end is the end of this interpreter.
    if order["module"] != "holdfast":
        del sys.modules[order["module"]]
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)


def _keep(files: list[int]) -> None:
    """Returns in a further fork, which is the command; the keeper stays to tell how that ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    *standard, telling = files
    if command := os.fork():
        for file in standard:
            os.close(file)
        os.write(telling, f"{command}\n".encode())
        _, status = os.waitpid(command, 0)
        os.write(telling, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    os.close(telling)
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)


if __name__ == "__main__":
    main()
