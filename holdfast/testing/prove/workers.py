"""The worker processes of a proof: started, killed, suspended, and replaced when they end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from tempfile import TemporaryFile

from holdfast.errors import HoldfastError

START_WITHIN = 60.0
LAST_WORDS = 2000


class Workers:
    """A fixed number of workers. One that ended is replaced by a new one."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", "holdfast.testing.prove.worker", *arguments]
        self._environment = environment
        self._running: dict[int, Process] = {}
        self._stopping = False

    @property
    def pids(self) -> list[int]:
        return sorted(self._running)

    @asynccontextmanager
    async def running(self, count: int) -> AsyncIterator[None]:
        """Keep workers running during the block, which begins once the first one takes work."""
        first_ready = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(self._keep_one(first_ready)) for _ in range(count)]
            await first_ready.wait()
            try:
                yield
            finally:
                self._stopping = True
                for pid in self.pids:
                    self.signal(pid, signal.SIGKILL)
                await asyncio.wait(keepers)

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a worker, if it still runs."""
        with suppress(ProcessLookupError, KeyError):
            self._running[pid].send_signal(number)

    async def _keep_one(self, ready: asyncio.Event) -> None:
        while not self._stopping:
            with TemporaryFile() as errors:
                worker = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=errors,
                    env=self._environment,
                )
                self._running[worker.pid] = worker
                try:
                    await _await_ready(worker)
                    if worker.returncode is None or worker.returncode < 0:
                        ready.set()
                    code = await worker.wait()
                finally:
                    del self._running[worker.pid]
                if code > 0:
                    raise HoldfastError(f"the app does not run: {_end_of(errors.fileno())}")


async def _await_ready(worker: Process) -> None:
    assert worker.stdout is not None
    async with asyncio.timeout(START_WITHIN):
        # Also returns at the end of the output: the worker was killed or could not start.
        await worker.stdout.readline()
    if not worker.stdout.at_eof():
        return
    await worker.wait()


def _end_of(file: int) -> str:
    """Return the last words of a worker that failed."""
    size = os.fstat(file).st_size
    text = os.pread(file, LAST_WORDS, max(0, size - LAST_WORDS)).decode(errors="replace")
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it ended without any output"
