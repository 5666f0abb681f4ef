"""The worker processes of the demonstration: two of them, replaced when one is killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from holdfast.queue.event import INBOX
from holdfast.queue.store import History

WORKERS = 2
END_WITHIN = 10.0
"""Seconds for a worker to stop; then it is killed."""


class Workers:
    """Starts workers, tells which one holds a message, and kills it."""

    def __init__(self, options: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", "holdfast.testing.crash.worker", *options]
        self._running: dict[int, Process] = {}
        self.killed: list[int] = []
        """Process ids of killed workers, in order."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the workers running during the block."""
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(self._keep_one_running()) for _ in range(WORKERS)]
            try:
                yield
            finally:
                for keeper in keepers:
                    keeper.cancel()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that run."""
        return list(self._running)

    async def busy(self, store: History) -> int | None:
        """Return the process id of the worker that holds a message, None if none does."""
        for event in await store.leased(INBOX, limit=1):
            pid = pid_of(event.holder or "")
            return pid if pid in self._running else None
        return None

    def kill(self, pid: int) -> None:
        """Kill a worker with SIGKILL: it gets no chance to clean up."""
        self._running[pid].send_signal(signal.SIGKILL)
        self.killed.append(pid)

    async def _keep_one_running(self) -> None:
        while True:
            worker = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL
            )
            self._running[worker.pid] = worker
            try:
                await worker.wait()
            except asyncio.CancelledError:
                await _stop(worker)
                raise
            finally:
                del self._running[worker.pid]


async def _stop(worker: Process) -> None:
    with suppress(ProcessLookupError):
        worker.terminate()
    try:
        async with asyncio.timeout(END_WITHIN):
            await worker.wait()
    except TimeoutError:
        worker.kill()


def pid_of(holder: str) -> int | None:
    """Read the process id in the name of a holder: host, process id and random characters."""
    pid = holder.rpartition("_")[0].rpartition("-")[2]
    return int(pid) if pid.isdigit() else None
