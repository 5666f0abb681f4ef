"""The processes of a queue: install its schema, put to it, work on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.database import read_one
from bench.mention import PAYLOAD
from bench.peers.catalogue import HOLDFAST, Peer
from bench.peers.side.event import Event
from bench.process import ROOT, Running, run_command, run_process
from holdfast.testing.databases import Databases

ENVIRONMENT = Path(os.environ.get("BENCH_PEERS", ROOT / ".venv-peers"))
"""Virtual environment of the peers, with `node_modules` in it; `make bench-peers` creates it."""
POLL_SECONDS = 0.02
WORKERS = {"default": (), "best": ("--workers", "2000"), "probe": ()}


def is_installed() -> bool:
    """Return whether the environment of the peers is there."""
    return (ENVIRONMENT / "bin" / "python").exists()


@contextmanager
def database(databases: Databases, peer: Peer) -> Iterator[str]:
    """Yield the URL of a database with the queue's schema and nothing in it."""
    if peer.side == HOLDFAST:
        with databases.fresh(peer.store) as url:
            yield url
        return
    with databases.empty(peer.store) as url:
        subprocess.run(_words(peer, "install", url), cwd=ROOT, env=_variables(), check=True)
        yield url


class Client:
    """A process that puts events."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._receive() == "the client is ready"

    def put(self, first: int, count: int, tasks: int = 1, batch: int = 1) -> float:
        """Put numbered events in so many tasks and batches. Returns the seconds it took."""
        self.begin(first, count, tasks, batch)
        return self.end()

    def begin(self, first: int, count: int, tasks: int = 1, batch: int = 1) -> None:
        """Begin to put, so that several processes put at once."""
        self._send({"first": first, "count": count, "tasks": tasks, "batch": batch})

    def end(self) -> float:
        """Wait for the end of what was begun."""
        return float(json.loads(self._receive())["seconds"])

    def put_one(self, event: Event) -> float:
        """Put an event with its lane and its key, where the queue knows these.

        Returns the time at which the put began."""
        given = {"key": event.key, "lane": event.lane, "payload": event.payload}
        self._send({"event": given})
        return float(json.loads(self._receive())["at"])

    def _send(self, command: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def _receive(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the client has ended"
        return line


@contextmanager
def client(peer: Peer, url: str, connections: int = 1) -> Iterator[Client]:
    """Start a process that puts through so many connections."""
    process = subprocess.Popen(
        _words(peer, "client", url, str(connections)),
        cwd=ROOT,
        env=_variables(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Client(process)
    finally:
        # The end of its input ends it.
        process.communicate()


@contextmanager
def worker(peer: Peer, url: str, mode: str, progress: Path | None = None) -> Iterator[Running]:
    """Start a worker with default, best or probe settings; stop it after the block."""
    variables = {"BENCH_PROGRESS": str(progress)} if progress else {}
    if peer.side == HOLDFAST:
        app = "bench.peers.side.holdfast:" + ("probe" if mode == "probe" else "app")
        with run_process("work", url, *WORKERS[mode], "--app", app, **variables) as running:
            yield running
        return
    with TemporaryDirectory(prefix="holdfast-bench-") as home:
        words = _words(peer, "worker", url, mode)
        with run_command(words, Path(home), _variables() | variables) as running:
            yield running


def is_pending(peer: Peer, url: str) -> bool:
    """Return whether an event waits or is being handled."""
    return bool(read_one(url, peer.pending))


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Wait for something that another process does. Returns whether it came in time."""
    give_up_at = time.monotonic() + seconds
    while not (is_done := done()) and time.monotonic() < give_up_at:
        time.sleep(POLL_SECONDS)
    return is_done


def _words(peer: Peer, role: str, url: str, *rest: str) -> list[str]:
    if peer.side.endswith(".cjs"):
        return ["node", str(Path(__file__).parent / "side" / peer.side), role, url, *rest]
    python = sys.executable if peer.own else str(ENVIRONMENT / "bin" / "python")
    return [python, "-m", "bench.peers.side", role, peer.side, url, *rest]


def _variables() -> dict[str, str]:
    return dict(os.environ) | {
        "PYTHONPATH": str(ROOT),
        "BENCH_MODULES": str(ENVIRONMENT / "package.json"),
        "BENCH_MENTION": json.dumps(PAYLOAD),
    }
