"""Servers for the pictures, each a process of its own on loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOLDFAST = Path(sys.executable).with_name("holdfast")
APP = "tools.screenshots.app:app"
PORT = 3797
ADDRESS = f"http://127.0.0.1:{PORT}"


def run(*command: str) -> str:
    """Run a command of Holdfast and return its output."""
    return subprocess.check_output([HOLDFAST, *command], text=True, cwd=ROOT)


def login(home: str, name: str) -> str:
    """Return a login link."""
    return run("login", "--name", name, "--home", home, "--port", str(PORT)).strip()


@contextmanager
def running(*command: str) -> Iterator[str]:
    """Run a server until the end of the block. Yields the line that says it is ready."""
    with subprocess.Popen(
        [str(HOLDFAST), *command], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            yield next(line for line in process.stdout if "ready" in line or "http://" in line)
        finally:
            process.terminate()


@contextmanager
def up(home: str) -> Iterator[None]:
    """Run `holdfast up` with the agents of the pictures."""
    with running("up", "--app", APP, "--home", home, "--port", str(PORT)):
        yield
