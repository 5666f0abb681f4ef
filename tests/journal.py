"""The journal of handlers and the rows of both tables, which the checker joins."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import psycopg

from holdfast.queue.outcome import Settled
from holdfast.queue.turn import LeasedTurn

POSTGRES_ROWS = """
select id, parent_id, cardinality(claimed), null from agent.event where id > %(since)s
union all
select id, parent_id, cardinality(claimed), outcome from agent.event_hist where id > %(since)s
"""
SQLITE_ROWS = """
select id, parent_id, json_array_length(claimed), null from event where id > :since
union all
select id, parent_id, json_array_length(claimed), outcome from event_hist where id > :since
"""


class Journal:
    """An append-only file that many processes share. Each entry is one write, so none is torn."""

    def __init__(self, path: Path | str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._process = os.getpid()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def start(self, turn: LeasedTurn) -> None:
        """Note that the handler begins."""
        self._write(
            {
                "what": "start",
                "id": event.id,
                "lane": event.lane,
                "queue": event.queue,
                "attempt": event.attempts,
            }
            | self._stamp(turn)
            for event in turn.events
        )

    def end(self, turn: LeasedTurn, emits: int = 0) -> None:
        """Note that the handler has ended; its settle follows, with `emits` events."""
        # Emits of a turn of several events derive from its primary.
        self._write(
            {"what": "end", "id": id, "emits": emits if id == turn.primary.id else 0}
            | self._stamp(turn)
            for id in turn.ids
        )

    def settle(self, turn: LeasedTurn, result: object) -> None:
        """Note the store's answer to the settle."""
        ended = result.ended if isinstance(result, Settled) else "lost"
        self._write(
            {"what": "settle", "id": id, "ended": ended} | self._stamp(turn) for id in turn.ids
        )

    def _stamp(self, turn: LeasedTurn) -> dict[str, Any]:
        # The monotonic clock belongs to the machine, so times of its processes are comparable.
        return {"process": self._process, "fence": turn.fence, "at": time.monotonic_ns()}

    def _write(self, lines: Iterable[dict[str, Any]]) -> None:
        os.write(self._file, "".join(json.dumps(line) + "\n" for line in lines).encode())


@dataclass(slots=True, kw_only=True)
class Run:
    """One event under one claim: from the handler's start to the answer to its settle."""

    process: int
    id: int
    queue: str
    lane: str | None
    fence: int
    attempt: int
    started_at: int
    ended_at: int | None = None
    emits: int = 0
    settles: list[str] = field(default_factory=list)

    @property
    def ended(self) -> str | None:
        """The outcome that the store returned; None if nobody lived to read it."""
        return self.settles[0] if self.settles else None

    def __str__(self) -> str:
        return f"event {self.id} (fence {self.fence}, process {self.process})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An event in a table; one without outcome is live."""

    id: int
    parent_id: int | None = None
    claims: int = 0
    outcome: str | None = None


def read_journal(path: Path | str) -> tuple[list[Run], list[str]]:
    """Return the runs in the order of their starts, and the faults of the journal."""
    runs: dict[tuple[int, int], Run] = {}
    faults: list[str] = []
    # Somebody may still be writing the last line.
    for line in Path(path).read_text().rpartition("\n")[0].splitlines():
        faults += _add_entry(runs, json.loads(line))
    return sorted(runs.values(), key=lambda run: (run.started_at, run.id)), faults


def _add_entry(runs: dict[tuple[int, int], Run], entry: dict[str, Any]) -> Iterator[str]:
    key = entry["id"], entry["fence"]
    name = f"event {entry['id']} (fence {entry['fence']}, process {entry['process']})"
    run = runs.get(key)
    if entry["what"] == "start":
        if run is not None:
            yield f"{name} was started under a fence that process {run.process} had used"
        names = ("process", "id", "queue", "lane", "fence", "attempt")
        runs.setdefault(
            key, Run(**{field: entry[field] for field in names}, started_at=entry["at"])
        )
    elif run is None or run.process != entry["process"]:
        yield f"{name} has an entry '{entry['what']}' without a start"
    elif entry["what"] == "end":
        run.ended_at, run.emits = entry["at"], entry["emits"]
    else:
        run.settles.append(entry["ended"])


def read_tables(url: str, since: int = 0) -> list[Row]:
    """Read all events after an id, live and finished, directly from the database."""
    found: Iterable[tuple[Any, ...]]
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(urlsplit(url).path, timeout=30)) as file:
            found = file.execute(SQLITE_ROWS, {"since": since}).fetchall()
    else:
        with psycopg.connect(url) as server:
            found = server.execute(POSTGRES_ROWS, {"since": since}).fetchall()
    return [
        Row(id=id, parent_id=parent, claims=claims, outcome=outcome)
        for id, parent, claims, outcome in found
    ]
