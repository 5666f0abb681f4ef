"""GET /api/overview: what an operator looks at first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NotRequired

from fastapi import APIRouter, Request
from typing_extensions import TypedDict

from holdfast.api.attention import LONG_WAIT, Concern, Situation, concerns
from holdfast.api.cached_read import CachedRead
from holdfast.api.health import (
    FAILURES_WITHIN,
    ChannelHealth,
    ProviderHealth,
    channel_health,
    memory_health,
    provider_health,
)
from holdfast.api.response import JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.scope import refuse_limited
from holdfast.api.state import ApiState, state_of
from holdfast.queue.event import INBOX, MEMORY, OUTBOX
from holdfast.queue.store import Count, Process, Store
from holdfast.routing.directory import CHANNELS
from holdfast.store.overview import DatabaseState, OverviewReads, RunningTurn
from holdfast.store.pairing import open_pairings
from holdfast.store.pauses import Pauses
from holdfast.store.statistics import Numbers, Window, add_up, read_by_target, read_series

routes = APIRouter(route_class=AuthorizedRoute, tags=["operations"])

MINUTES = 5
"""Minutes over which rates are averaged."""
LATELY = Window(timedelta(minutes=1), MINUTES + 1)
QUARTER = Window(timedelta(minutes=1), FAILURES_WITHIN // timedelta(minutes=1))
MOST_SHOWN = 20
"""Turns shown of each process."""


class QueueOverview(TypedDict):
    """Numbers of one queue; rates are of the last five minutes."""

    queue: str
    ready: int
    delayed: int
    queued: int
    processing: int
    dead: int
    oldestWaitingAt: int | None
    paused: bool
    receivedPerMinute: float
    completedPerMinute: float
    failedPerMinute: float


class WorkItem(TypedDict):
    """An event that a process works on now."""

    eventId: int
    queue: str
    agent: str
    messageId: str | None
    lane: str | None
    since: int
    progress: NotRequired[str]


class WorkerOverview(TypedDict):
    """A process, what it serves, and what it does now."""

    process: str
    host: str
    version: str | None
    startedAt: int
    seenAt: int
    agents: list[str]
    channels: list[str]
    turns: int
    now: list[WorkItem]


class DatabaseOverview(TypedDict):
    """The database, and how long a short query takes."""

    status: str
    engine: str
    timescale: NotRequired[str]
    milliseconds: float
    oldestSnapshotSeconds: float


class ChannelOverview(TypedDict):
    """A channel, and the processes that serve it."""

    channel: str
    status: str
    processes: list[str]
    problems: list[str]


class ProviderOverview(TypedDict):
    """A provider of language models."""

    provider: str
    agents: list[str]
    status: str
    failures: int
    lastError: NotRequired[str]
    lastErrorAt: NotRequired[int]


class MemoryOverview(TypedDict):
    """Changes of memory that are not in the index yet."""

    status: str
    pending: int
    oldestAt: int | None
    dead: int


class Health(TypedDict):
    """The parts that an installation depends on. `status` is ok, warning, failing or unknown."""

    database: DatabaseOverview
    channels: list[ChannelOverview]
    providers: list[ProviderOverview]
    memory: MemoryOverview


class Attention(TypedDict):
    """Something that needs a person. `severity` is high, medium or low."""

    kind: str
    severity: str
    text: str
    count: int | None
    since: int | None
    link: str


class Overview(TypedDict):
    """Queues, workers, health, and what needs a person, the most urgent first."""

    now: int
    queues: list[QueueOverview]
    workers: list[WorkerOverview]
    health: Health
    attention: list[Attention]


EXAMPLE: dict[str, Any] = {
    "now": 1767225600000,
    "queues": [
        {
            "queue": "inbox",
            "ready": 3,
            "delayed": 0,
            "queued": 1,
            "processing": 1,
            "dead": 4,
            "oldestWaitingAt": 1767225590000,
            "paused": False,
            "receivedPerMinute": 12.4,
            "completedPerMinute": 12.0,
            "failedPerMinute": 0.2,
        }
    ],
    "workers": [
        {
            "process": "host-4711_m8boovyb",
            "host": "host",
            "version": "0.8.0",
            "startedAt": 1767220000000,
            "seenAt": 1767225599000,
            "agents": ["coder"],
            "channels": ["slack"],
            "turns": 1,
            "now": [
                {
                    "eventId": 7,
                    "queue": "inbox",
                    "agent": "coder",
                    "messageId": "api_m8boovyb",
                    "lane": "coder/api:Ada",
                    "since": 1767225595000,
                    "progress": "reading the log",
                }
            ],
        }
    ],
    "health": {
        "database": {
            "status": "ok",
            "engine": "PostgreSQL 16.4",
            "milliseconds": 2.1,
            "oldestSnapshotSeconds": 0.0,
        },
        "channels": [
            {
                "channel": "slack",
                "status": "ok",
                "processes": ["host-4711_m8boovyb"],
                "problems": [],
            }
        ],
        "providers": [{"provider": "openai", "agents": ["coder"], "status": "ok", "failures": 0}],
        "memory": {"status": "ok", "pending": 0, "oldestAt": None, "dead": 0},
    },
    "attention": [
        {
            "kind": "approval",
            "severity": "high",
            "text": "coder waits for the signal 'approve'",
            "count": 1,
            "since": 1767225000000,
            "link": "/console/messages/7",
        }
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """One reading of everything that the overview shows."""

    situation: Situation
    processes: Sequence[Process]
    running: Sequence[RunningTurn]
    rates: Mapping[str, Numbers]


@routes.get(
    "/api/overview",
    summary="Get the overview of an installation",
    **route_options("read", Overview, EXAMPLE),
)
async def get_overview(request: Request) -> JsonResponse:
    """Queues with rates, processes with what each does now, health, and what needs a person.

    One reading serves all callers that wait; if it takes longer than 50 ms, it is cached for up to
    20 times that long."""
    await refuse_limited(request)
    state = state_of(request)
    if state.overview is None:
        quick = state.limits.quick_query
        state.overview = CachedRead(lambda: read_overview(state), quick=quick)
    return JsonResponse(await state.overview.get())


async def read_overview(state: ApiState) -> Overview:
    facts = await _read_facts(state)
    now = facts.situation
    return Overview(
        now=millis(now.now),
        queues=[_queue(name, facts) for name in facts.rates],
        workers=[_worker(process, facts) for process in facts.processes],
        health=Health(
            database=_database(now.database),
            channels=[_channel(one) for one in now.channels],
            providers=[_provider(one) for one in now.providers],
            memory=MemoryOverview(
                status=now.memory.status,
                pending=now.memory.pending,
                oldestAt=None if now.memory.oldest_at is None else millis(now.memory.oldest_at),
                dead=now.memory.dead,
            ),
        ),
        attention=[_attention(one) for one in concerns(now)],
    )


async def _read_facts(state: ApiState) -> _Facts:
    store, reads = state.store, OverviewReads(state.store)
    directory, now, counts = await state.directory(), await store.now(), await store.counts()
    processes, dead = await store.processes(), await reads.dead()
    names = dict.fromkeys([INBOX, OUTBOX, MEMORY, *sorted({one.queue for one in counts})])
    situation = Situation(
        now=now,
        directory=directory,
        counts=counts,
        paused=await Pauses(store).all(),
        database=await reads.database(),
        channels=channel_health(processes),
        providers=provider_health(
            processes,
            await reads.model_failures(now - FAILURES_WITHIN),
            await read_by_target(store, QUARTER, INBOX),
            directory,
        ),
        memory=memory_health(counts, dead, now),
        dead=dead,
        approvals=await reads.approvals(),
        requests=await open_pairings(store).requests(),
    )
    rates = {name: await _lately(store, name) for name in names}
    return _Facts(
        situation=situation, processes=processes, running=await reads.running(), rates=rates
    )


async def _lately(store: Store, queue: str) -> Numbers:
    """Add up the last five full minutes and the current one."""
    return add_up((await read_series(store, LATELY, queue)).values())


def _queue(name: str, facts: _Facts) -> QueueOverview:
    now, lately = facts.situation, facts.rates[name]
    own = [one for one in now.counts if one.queue == name]
    minutes = MINUTES + (now.now.second + 1) / 60
    return QueueOverview(
        queue=name,
        ready=sum(one.ready for one in own),
        delayed=sum(one.delayed for one in own),
        queued=sum(one.queued for one in own),
        processing=sum(one.leased for one in own),
        dead=sum(one.count for one in now.dead if one.queue == name),
        oldestWaitingAt=_oldest(own),
        paused=now.paused.has_queue(name),
        receivedPerMinute=round(lately.received / minutes, 1),
        completedPerMinute=round(lately.completed / minutes, 1),
        failedPerMinute=round(lately.failed / minutes, 1),
    )


def _oldest(counts: Sequence[Count]) -> int | None:
    moments: list[datetime] = [one.ready_since for one in counts if one.ready_since is not None]
    return millis(min(moments)) if moments else None


def _worker(process: Process, facts: _Facts) -> WorkerOverview:
    own, serves = _work_of(process, facts), process.serves or {}
    return WorkerOverview(
        process=process.id,
        host=process.host,
        version=process.version,
        startedAt=millis(process.started_at),
        seenAt=millis(process.seen_at),
        agents=sorted(serves.get("lanes") or ()),
        channels=sorted(serves.get(CHANNELS) or ()),
        turns=len(own),
        now=own[:MOST_SHOWN],
    )


def _work_of(process: Process, facts: _Facts) -> list[WorkItem]:
    default = facts.situation.directory.routing.default
    return [_work_item(turn, default) for turn in facts.running if turn.holder == process.id]


def _work_item(turn: RunningTurn, default: str) -> WorkItem:
    item = WorkItem(
        eventId=turn.event_id,
        queue=turn.queue,
        agent=turn.target or (default if turn.queue == INBOX else ""),
        messageId=turn.message_id,
        lane=turn.lane,
        since=millis(turn.since),
    )
    return item if turn.progress is None else {**item, "progress": turn.progress}


def _database(state: DatabaseState) -> DatabaseOverview:
    snapshot = state.oldest_snapshot or timedelta(0)
    is_slow = state.latency > timedelta(seconds=1) or snapshot > 2 * LONG_WAIT
    found = DatabaseOverview(
        status="warning" if is_slow else "ok",
        engine=state.engine,
        milliseconds=round(state.latency / timedelta(milliseconds=1), 1),
        oldestSnapshotSeconds=round(snapshot.total_seconds(), 1),
    )
    return found if state.timescale is None else {**found, "timescale": state.timescale}


def _channel(health: ChannelHealth) -> ChannelOverview:
    return ChannelOverview(
        channel=health.channel,
        status=health.status,
        processes=list(health.processes),
        problems=list(health.problems),
    )


def _provider(health: ProviderHealth) -> ProviderOverview:
    found = ProviderOverview(
        provider=health.provider,
        agents=list(health.agents),
        status=health.status,
        failures=health.failures,
    )
    if health.last_error is not None and health.last_error_at is not None:
        found["lastError"] = health.last_error
        found["lastErrorAt"] = millis(health.last_error_at)
    return found


def _attention(concern: Concern) -> Attention:
    return Attention(
        kind=concern.kind,
        severity=concern.severity,
        text=concern.text,
        count=concern.count,
        since=None if concern.since is None else millis(concern.since),
        link=concern.link,
    )
