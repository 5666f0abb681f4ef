"""Runs a command and ends everything it started, even if the worker or the supervisor is killed.

This file runs as a script, without the package: that starts in milliseconds and inherits no
secrets."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

CANNOT_START = 127
KILL_AFTER = 2.0
"""Seconds between SIGTERM and SIGKILL; shorter than a stopping process waits for its turns."""
POLL_INTERVAL = 0.02
KILL_FOR = 5.0
"""Seconds to repeat SIGKILL; a process that survives them is stuck in the kernel."""

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

SET_DUMPABLE = 4
_SET_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_PROCESSES = Path("/proc")


def supervised_command(pipe: int, command: Sequence[str]) -> list[str]:
    """Return the command under a supervisor that ends it when the pipe's other end is closed.

    Pipe 0 is the command's standard input."""
    return [sys.executable, "-I", "-S", __file__, str(pipe), *command]


def main(pipe: int, command: list[str]) -> int:
    """Run a command below two processes that watch each other. Returns its exit code as a shell
    does.

    If the supervisor is killed, its descendants become children of the guardian, which kills them.
    If the guardian is killed, the kernel signals the supervisor, which ends the command."""
    guardian = os.getpid()
    prctl(_SET_CHILD_SUBREAPER, 1)
    supervisor = os.fork()
    if supervisor:
        return _guard(supervisor)
    # A signal to the guardian's process group must not reach both processes.
    os.setpgid(0, 0)
    prctl(_SET_CHILD_SUBREAPER, 1)
    prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
    return _supervise(pipe, command, guardian)


def _guard(supervisor: int) -> int:
    for number in ENDS:
        signal.signal(number, lambda number, frame: os.kill(supervisor, signal.SIGTERM))
    _release_streams()
    family = Family(supervisor)
    family.wait_for_leader()
    if not family.reap():
        family.end(kill_after=0)
    return family.exit_code


def _supervise(pipe: int, command: list[str], guardian: int) -> int:
    pipe = os.dup(pipe)
    woken, asked = _signals()
    events = select.poll()
    # Only the end of the pipe matters; nothing that is written to it is read.
    events.register(pipe, 0)
    if os.getppid() != guardian or events.poll(0):
        return 128 + signal.SIGTERM
    try:
        child = subprocess.Popen(command, process_group=0, preexec_fn=_die_with_parent)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return CANNOT_START
    _release_streams()
    family = Family(child.pid)
    events.register(woken, select.POLLIN)
    while family.status is None and not asked:
        if pipe in dict(events.poll()):
            break
        os.read(woken, 4096)
        family.reap()
    family.end(KILL_AFTER)
    return family.exit_code


def _signals() -> tuple[int, list[int]]:
    """Catch signals that ask us to end, and ends of children.

    Returns a pipe that becomes readable at each signal, and a list that collects the requests."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    asked: list[int] = []
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number in ENDS:
        signal.signal(number, lambda number, frame: asked.append(number))
    return woken, asked


class Family:
    """A command and all its descendants, also those that left its process group or lost a
    parent."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self.status: int | None = None

    @property
    def exit_code(self) -> int:
        if self.status is None:
            return 128 + signal.SIGKILL
        code = os.waitstatus_to_exitcode(self.status)
        return code if code >= 0 else 128 - code

    def wait_for_leader(self) -> None:
        _, self.status = os.waitpid(self._leader, 0)

    def reap(self) -> bool:
        """Collect ended processes. Returns whether none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._leader:
                self.status = status

    def end(self, kill_after: float) -> None:
        """Send SIGTERM to all, wait `kill_after` seconds, then SIGKILL until none is left."""
        self._signal(signal.SIGTERM)
        self._wait(kill_after)
        give_up_at = time.monotonic() + KILL_FOR
        while not self.reap() and time.monotonic() < give_up_at:
            # Repeat it: a process may have forked since it was listed.
            self._signal(signal.SIGKILL)
            self._wait(POLL_INTERVAL)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.reap() and time.monotonic() < until:
            time.sleep(POLL_INTERVAL)

    def _signal(self, number: int) -> None:
        descendants = _descendants(os.getpid())
        if number == signal.SIGTERM and (
            inside := [pid for pid in descendants if not _is_sandbox(pid)]
        ):
            # A sandbox that gets SIGTERM kills its program at once, so signal the program.
            descendants = inside
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader, number)
        for pid in descendants:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _is_sandbox(pid: int) -> bool:
    with suppress(OSError):
        return (_PROCESSES / str(pid) / "comm").read_bytes() == b"bwrap\n"
    return False


def _descendants(ancestor: int) -> list[int]:
    """Return all descendants of a process. Empty on systems without /proc."""
    parents: dict[int, int] = {}
    for folder in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # The line is `pid (name) state parent …`, and the name may contain anything.
            parents[int(folder.name)] = int(
                (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            )
    found: list[int] = []
    generation = {ancestor}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        found += generation
    return found


def _release_streams() -> None:
    """Close our copies of the standard streams, so that readers see the end of the command's."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _die_with_parent() -> None:
    prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process on Linux. Does nothing on other systems."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
