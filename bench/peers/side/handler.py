"""The handler of all queues: it reads its payload, counts, and does what a probe asks for."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.peers.side.event import Event, following

STEP = 500
POLL_SECONDS = 0.02
END_SECONDS = 2
PROGRESS = os.environ.get("BENCH_PROGRESS")
"""File to which a worker appends how many events it has handled, and when."""
_handled = 0

Emit = Callable[[Event], Awaitable[object]]


async def handle(payload: dict[str, Any], emit: Emit | None = None) -> None:
    """Handle an event: read it, and do what it says."""
    channel, text = payload["channel"], payload["text"]
    assert payload["type"] == "app_mention", payload
    assert text.split(maxsplit=1)[0].startswith("<@"), text
    assert channel.startswith("C"), channel
    if "journal" in payload:
        await _follow(payload, emit)
    _count()


def _count() -> None:
    global _handled
    _handled += 1
    if PROGRESS and (_handled == 1 or _handled % STEP == 0):
        _append(PROGRESS, {"handled": _handled, "at": time.time()})


async def _follow(payload: dict[str, Any], emit: Emit | None) -> None:
    """Do what a probe asks for, and note when the handler begins and ends."""
    journal, name, does = payload["journal"], payload["name"], payload["does"]
    attempt = 1 + sum(note["name"] == name for note in read(journal) if note["what"] == "begin")
    note = {"name": name, "attempt": attempt, "process": os.getpid()}
    _append(journal, note | {"what": "begin", "at": time.time()})
    if does == "hangs first" and attempt == 1:
        await asyncio.Event().wait()
    if does == "fails first" and attempt == 1:
        raise RuntimeError("the first attempt fails")
    if does == "waits":
        await _wait_for(f"{payload['gate']}-{attempt}")
    if does == "adds and dies first" and emit is not None:
        added = following(payload)
        if attempt > 1:
            # If the first attempt stored the event, let it end before it is added again.
            await _wait_for_end(journal, added.key)
        await emit(added)
        if attempt == 1:
            # The add has reached the server: it was awaited above.
            os.kill(os.getpid(), signal.SIGKILL)
    _append(journal, note | {"what": "end", "at": time.time()})


async def _wait_for(gate: str) -> None:
    while not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240 - another process opens it
        await asyncio.sleep(POLL_SECONDS)


async def _wait_for_end(journal: str, name: str) -> None:
    for _ in range(int(END_SECONDS / POLL_SECONDS)):
        if any(note["name"] == name and note["what"] == "end" for note in read(journal)):
            return
        await asyncio.sleep(POLL_SECONDS)


def read(journal: str | Path) -> list[dict[str, Any]]:
    """Return the notes of a journal so far."""
    path = Path(journal)
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _append(path: str, note: dict[str, Any]) -> None:
    """Append a line in one write, since several processes share a journal."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, json.dumps(note).encode() + b"\n")
    os.close(file)
