"""Fixtures: copies of examples, worked by real processes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.shell import Running, Shell

EXAMPLES = Path(__file__).parents[2] / "examples"

Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    """A shell in a copy of the example that the module names."""
    name = request.module.EXAMPLE
    return Shell(Path(shutil.copytree(EXAMPLES / name, tmp_path / name)))


@pytest.fixture
def start(shell: Shell) -> Start:
    """Run a command in the background without blocking the loop, and kill -9 it at the end."""

    @asynccontextmanager
    async def run(*arguments: str, **variables: str) -> AsyncIterator[Running]:
        process = shell.running(*arguments, **variables)
        running = await asyncio.to_thread(process.__enter__)
        try:
            yield running
        finally:
            await asyncio.to_thread(process.__exit__, None, None, None)

    return run
