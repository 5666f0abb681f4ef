"""Runs one command so that nothing of it is left: neither after its end, nor when its worker or supervisor is killed.

It is started as a file of its own, without the package, so that it costs a few milliseconds and inherits no secrets."""

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
"""Seconds between asking a command to end and killing it; less than a stopping process waits for its turns."""
LOOK_EVERY = 0.02
KILL_FOR = 5.0
"""Seconds to go on killing what is left; only the kernel can hold a process for longer."""

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

SET_DUMPABLE = 4
_SET_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_PROCESSES = Path("/proc")


def supervised(pipe: int, command: Sequence[str]) -> list[str]:
    """Wrap a command so that it ends with the other end of a pipe; 0 is its own standard input."""
    return [sys.executable, "-I", "-S", __file__, str(pipe), *command]


def main(pipe: int, command: list[str]) -> int:
    """Run a command below two processes that watch each other. Returns its exit code as a shell would give it.

    Descendants of a killed supervisor fall to the guardian, which kills them. A supervisor whose
    guardian is killed gets a signal from the kernel and ends the command."""
    guardian = os.getpid()
    prctl(_SET_CHILD_SUBREAPER, 1)
    supervisor = os.fork()
    if supervisor:
        return _guard(supervisor)
    # A signal to the guardian's process group must not reach both.
    os.setpgid(0, 0)
    prctl(_SET_CHILD_SUBREAPER, 1)
    prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
    return _supervise(pipe, command, guardian)


def _guard(supervisor: int) -> int:
    for number in ENDS:
        signal.signal(number, lambda number, frame: os.kill(supervisor, signal.SIGTERM))
    _let_go_of_streams()
    family = Family(supervisor)
    family.wait_for_leader()
    if not family.bury():
        family.end(kill_after=0)
    return family.exit_code


def _supervise(pipe: int, command: list[str], guardian: int) -> int:
    pipe = os.dup(pipe)
    woken, asked = _signals()
    events = select.poll()
    # Nothing written to it is read: only its end matters.
    events.register(pipe, 0)
    if os.getppid() != guardian or events.poll(0):
        return 128 + signal.SIGTERM
    try:
        child = subprocess.Popen(command, process_group=0, preexec_fn=_die_with_parent)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return CANNOT_START
    _let_go_of_streams()
    family = Family(child.pid)
    events.register(woken, select.POLLIN)
    while family.status is None and not asked:
        if pipe in dict(events.poll()):
            break
        os.read(woken, 4096)
        family.bury()
    family.end(KILL_AFTER)
    return family.exit_code


def _signals() -> tuple[int, list[int]]:
    """Catch what asks us to end, and ends of children. Returns a pipe that wakes, and what asked."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    asked: list[int] = []
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number in ENDS:
        signal.signal(number, lambda number, frame: asked.append(number))
    return woken, asked


class Family:
    """A command and all that descends from it, also what left its process group or lost its parent."""

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

    def bury(self) -> bool:
        """Take note of what has ended. Returns whether all has."""
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
        """Ask all to end, kill the rest after some seconds, until nobody is left."""
        self._signal(signal.SIGTERM)
        self._wait(kill_after)
        give_up_at = time.monotonic() + KILL_FOR
        while not self.bury() and time.monotonic() < give_up_at:
            # Again and again: what was found a moment ago may have forked since.
            self._signal(signal.SIGKILL)
            self._wait(LOOK_EVERY)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.bury() and time.monotonic() < until:
            time.sleep(LOOK_EVERY)

    def _signal(self, number: int) -> None:
        descendants = _descendants(os.getpid())
        if number == signal.SIGTERM and (
            inside := [pid for pid in descendants if not _is_sandbox(pid)]
        ):
            # A sandbox that is asked to end kills its program without asking it.
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
    """List all processes below one, where the system shows them; elsewhere the process group has to do."""
    parents: dict[int, int] = {}
    for folder in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # pid (name) state parent …, and a name may hold anything.
            parents[int(folder.name)] = int(
                (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            )
    found: list[int] = []
    generation = {ancestor}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        found += generation
    return found


def _let_go_of_streams() -> None:
    """Leave the streams to the command alone, so that their reader sees them end with it."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _die_with_parent() -> None:
    prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process on Linux; other systems have none of them."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
