"""Processes with a channel that kill themselves, and the databases that they leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from tests.channels.doomed import NOWHERE, module_of
from tests.crash.conftest import GRACE
from tests.fork_server import PipedProcess

DIES_WITHIN = 30.0


class Doomed:
    """A process that is ready."""

    def __init__(self, process: PipedProcess, port: int) -> None:
        self._process = process
        self.address = f"http://127.0.0.1:{port}"

    async def death(self) -> int:
        """Wait until it has ended. Returns its exit code."""
        return await asyncio.to_thread(self._process.wait, DIES_WITHIN)


@asynccontextmanager
async def process(
    channel: str, url: str, home: Path, point: str = NOWHERE
) -> AsyncIterator[Doomed]:
    """Run a process, and kill it at the end of the block."""
    arguments = (channel, url, str(home), point)
    preload = [module_of(channel)]
    with PipedProcess("tests.channels.doomed", *arguments, preload=preload) as started:
        ready, port = (await asyncio.to_thread(started.read_line)).split()
        assert ready == "ready"
        yield Doomed(started, int(port))


def without_grace(url: str) -> None:
    """Our server has only just started, which would spare the dead for half a minute."""
    if not url.startswith("sqlite"):
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(GRACE.encode())


def kills(
    points: Sequence[str], *, short: Sequence[str], everywhere: str | None = None
) -> pytest.MarkDecorator:
    """Kill at the short points on SQLite, and at one everywhere; `make chaos` does the others."""
    cases = [
        pytest.param(engine, point, marks=() if is_short else (pytest.mark.chaos,))
        for point in points
        for engine, is_short in (("sqlite", point in short), ("postgres", point == everywhere))
    ]
    return pytest.mark.parametrize(("engine", "point"), cases, indirect=["engine"])
