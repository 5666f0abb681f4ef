"""Reads for the overview: turns in progress or waiting for a person, dead letters, failures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import from_json

from holdfast.queue.journal import EFFECT_UNKNOWN
from holdfast.queue.store import DEAD_OUTCOMES, Store
from holdfast.store.scoped import Dialect, dialect_of

MOST_TURNS = 500
LONGEST_PROMPT = 200
MOST_APPROVALS = 50
SEARCHED_FAILURES = 1000
"""Failed attempts that are searched for those of providers, latest first."""

MOMENTS = frozenset({"at", "since", "newest_at", "oldest_at"})
DEAD = f"outcome in ({', '.join(repr(outcome) for outcome in DEAD_OUTCOMES)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTurn:
    """An event that a process works on, and since when."""

    event_id: int
    queue: str
    target: str
    message_id: str | None
    lane: str | None
    holder: str | None
    since: datetime
    progress: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A turn that waits for a signal, which somebody has to send."""

    event_id: int
    message_id: str | None
    target: str
    signal: str
    since: datetime
    prompt: str
    """The question of the turn; empty if it only waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadCount:
    """Dead letters of a queue. Those with an unknown effect are counted apart."""

    queue: str
    is_effect_unknown: bool
    count: int
    newest_at: datetime
    oldest_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailure:
    """A failed call of a language model."""

    target: str
    error: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """The server of a store, and how long a short query takes."""

    engine: str
    timescale: str | None
    latency: timedelta
    oldest_snapshot: timedelta | None


class OverviewReads:
    """Reads for the overview; each is one short query whose cost does not grow with history."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dialect: Dialect = dialect_of(store)

    async def database(self) -> DatabaseState:
        """Describe the server."""
        begun_at = time.perf_counter()
        [(engine, timescale)] = await self._dialect.rows(self._dialect.server, {})
        latency = timedelta(seconds=time.perf_counter() - begun_at)
        return DatabaseState(
            engine=engine,
            timescale=timescale,
            latency=latency,
            oldest_snapshot=await self._store.oldest_snapshot(),
        )

    async def running(self) -> list[RunningTurn]:
        """List events that are being worked, longest running first."""
        event, journal = self._table("event"), self._table("journal")
        rows = await self._dialect.rows(
            f"select e.id, e.queue, e.target, e.message_id, e.lane, e.holder, e.since, j.progress"
            f" from (select id, queue, target, message_id, lane, holder,"
            f" coalesce({self._dialect.last_claim}, updated_at) as since from {event}"
            f" where attempts > 0 and fence > 0 and vt > {self._mark('now')}) as e"
            f" left join {journal} as j on j.event_id = e.id"
            f" order by e.since, e.id limit {MOST_TURNS}",
            {"now": self._dialect.moment(await self._store.now())},
        )
        return [self._running(row) for row in rows]

    async def approvals(self) -> list[Approval]:
        """List turns that wait for a signal, longest waiting first."""
        rows = await self._dialect.rows(
            "select e.id, e.message_id, e.target, s.signal, s.started_at, s.arguments"
            f" from {self._table('step')} as s"
            f" join {self._table('event')} as e on e.id = s.event_id"
            " where s.kind = 'signal' and s.state = 'started' and e.fence = 0"
            f" order by s.started_at, e.id limit {MOST_APPROVALS}",
            {},
        )
        names = ("event_id", "message_id", "target", "signal", "since")
        return [Approval(**self._values(names, row[:-1]), prompt=_prompt(row[-1])) for row in rows]

    async def dead(self) -> list[DeadCount]:
        """Count the dead letters of each queue."""
        rows = await self._dialect.rows(
            "select queue, unknown, count(*), max(finished_at), min(finished_at) from"
            " (select queue, finished_at,"
            f" coalesce(error_class, '') = '{EFFECT_UNKNOWN}' as unknown"
            f" from {self._table('event_hist')} where {DEAD}) as dead"
            " group by queue, unknown order by queue, unknown",
            {},
        )
        names = ("queue", "is_effect_unknown", "count", "newest_at", "oldest_at")
        return [DeadCount(**self._values(names, row)) for row in rows]

    async def model_failures(self, since: datetime) -> list[ModelFailure]:
        """List failed calls of language models, latest first."""
        rows = await self._dialect.rows(
            "select coalesce(e.target, h.target, ''), coalesce(a.error, ''), a.at from"
            f" (select event_id, error, error_class, at from {self._table('attempt')}"
            f" order by id desc limit {SEARCHED_FAILURES}) as a"
            f" left join {self._table('event')} as e on e.id = a.event_id"
            f" left join {self._table('event_hist')} as h on h.id = a.event_id"
            f" where a.at >= {self._mark('since')} and substr(a.error_class, 1, 5) = 'Model'"
            " order by a.at desc",
            {"since": self._dialect.moment(since)},
        )
        return [ModelFailure(**self._values(("target", "error", "at"), row)) for row in rows]

    def _running(self, row: Sequence[Any]) -> RunningTurn:
        names = ("event_id", "queue", "target", "message_id", "lane", "holder", "since", "progress")
        return RunningTurn(**self._values(names, row))

    def _values(self, names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
        """Return the values of a row by name, with its moments and flags as Python's."""
        values = dict(zip(names, row, strict=True))
        moments = {name: values[name] for name in names if name in MOMENTS}
        flags = {name: bool(values[name]) for name in names if name.startswith("is_")}
        return (
            values
            | flags
            | {name: self._dialect.to_datetime(value) for name, value in moments.items()}
        )

    def _table(self, name: str) -> str:
        return f"{self._dialect.schema}{name}"

    def _mark(self, name: str) -> str:
        return self._dialect.mark.format(name)


def _prompt(arguments: str | None) -> str:
    """Return the question of a wait in one line."""
    asked = from_json(arguments) if arguments else None
    prompt = asked.get("prompt") if isinstance(asked, dict) else None
    return " ".join(str(prompt or "").split())[:LONGEST_PROMPT]
