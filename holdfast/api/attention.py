"""Things that need a person, the most urgent first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import quote, urlencode

from holdfast.api.health import ChannelHealth, MemoryHealth, ProviderHealth
from holdfast.queue.event import INBOX
from holdfast.queue.store import Count
from holdfast.routing.directory import Directory
from holdfast.store.overview import Approval, DatabaseState, DeadCount
from holdfast.store.pairing import Pairing
from holdfast.store.pauses import QUEUES, ActivePauses

Severity = Literal["high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low")
MOST = 50

LONG_WAIT = timedelta(minutes=5)
RECENT = timedelta(hours=1)
TODAY = timedelta(days=1)
SLOW = timedelta(seconds=1)
OLD_SNAPSHOT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """Something that needs a person, and the page of the console that shows it."""

    kind: str
    severity: Severity
    text: str
    link: str
    count: int | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that may need a person."""

    now: datetime
    directory: Directory
    counts: Sequence[Count]
    paused: ActivePauses
    database: DatabaseState
    channels: Sequence[ChannelHealth]
    providers: Sequence[ProviderHealth]
    memory: MemoryHealth
    dead: Sequence[DeadCount]
    approvals: Sequence[Approval]
    requests: Sequence[Pairing]


def concerns(situation: Situation) -> list[Concern]:
    """Return what needs a person: by severity, then in the order of FINDERS."""
    found = [concern for find in FINDERS for concern in find(situation)]
    return sorted(found, key=lambda one: SEVERITIES.index(one.severity))[:MOST]


def _database(now: Situation) -> Iterator[Concern]:
    state = now.database
    if state.latency > SLOW:
        seconds = state.latency.total_seconds()
        text = f"the database takes {seconds:.1f} s for a short query"
        yield Concern(kind="database", severity="high", text=text, link="/console")
    if state.oldest_snapshot is not None and state.oldest_snapshot > OLD_SNAPSHOT:
        minutes = state.oldest_snapshot // timedelta(minutes=1)
        text = f"a transaction has been open for {minutes} minutes; it slows the queues down"
        since = now.now - state.oldest_snapshot
        yield Concern(kind="database", severity="medium", text=text, link="/console", since=since)


def _channels(now: Situation) -> Iterator[Concern]:
    for one in now.channels:
        if one.problems:
            text = f"{one.channel}: {one.problems[0]}"
            yield Concern(kind="channel", severity="high", text=text, link="/console")


def _approvals(now: Situation) -> Iterator[Concern]:
    for one in now.approvals:
        agent = one.target or now.directory.routing.default
        yield Concern(
            kind="approval",
            severity="high",
            text=f"{agent} asks: {one.prompt}"
            if one.prompt
            else f"{agent} waits for the signal {one.signal!r}",
            link=f"/console/messages/{one.event_id}",
            count=1,
            since=one.since,
        )


def _dead(now: Situation) -> Iterator[Concern]:
    for one in now.dead:
        counted = "1 dead letter" if one.count == 1 else f"{one.count} dead letters"
        age = now.now - one.newest_at
        if one.is_effect_unknown:
            kind, text = (
                "effect_unknown",
                f"{counted} of {one.queue} may have acted already: decide",
            )
            severity: Severity = "high"
        else:
            kind, text = "dead", f"{counted} of {one.queue}"
            severity = "high" if age < RECENT else "medium" if age < TODAY else "low"
        yield Concern(
            kind=kind,
            severity=severity,
            text=text,
            link=f"/console/dead?{urlencode({'queue': one.queue})}",
            count=one.count,
            since=one.newest_at,
        )


def _unserved_agents(now: Situation) -> Iterator[Concern]:
    for agent, counts in _by_agent(now).items():
        waiting = sum(one.ready + one.delayed + one.queued for one in counts)
        if waiting and not now.directory.is_served(agent):
            yield Concern(
                kind="unserved",
                severity="high",
                text=f"no process serves {agent or 'the default agent'}",
                link=_messages_of(agent),
                count=waiting,
                since=_first(one.pending_since for one in counts),
            )


def _waiting(now: Situation) -> Iterator[Concern]:
    for agent, counts in _by_agent(now).items():
        since = _first(one.ready_since for one in counts)
        if since is not None and now.now - since > LONG_WAIT and _is_worked(now, agent):
            minutes = (now.now - since) // timedelta(minutes=1)
            yield Concern(
                kind="waiting",
                severity="medium",
                text=f"the oldest message for {agent} has waited {minutes} minutes",
                link=_messages_of(agent),
                count=sum(one.ready for one in counts),
                since=since,
            )


def _is_worked(now: Situation, agent: str) -> bool:
    """Whether a process serves an agent that nobody paused."""
    is_paused = now.paused.find("agent", agent) is not None or now.paused.has_queue(INBOX)
    return now.directory.is_served(agent) and not is_paused


def _providers(now: Situation) -> Iterator[Concern]:
    for one in now.providers:
        if one.failures:
            yield Concern(
                kind="provider",
                severity="high" if one.status == "failing" else "medium",
                text=f"{one.provider}: {one.last_error}",
                link="/console/agents",
                count=one.failures,
                since=one.last_error_at,
            )


def _memory(now: Situation) -> Iterator[Concern]:
    memory = now.memory
    if memory.status != "ok":
        text = f"{memory.pending} changes of memory wait for the index"
        yield Concern(
            kind="memory",
            severity="medium",
            text=text,
            link="/console/memory",
            count=memory.pending,
            since=memory.oldest_at,
        )


def _pairing(now: Situation) -> Iterator[Concern]:
    for one in now.requests:
        yield Concern(
            kind="pairing",
            severity="medium",
            text=f"{one.sender or one.sender_id} asks for access by {one.channel}",
            link="/console/access?tab=pairing",
            count=1,
            since=one.requested_at,
        )


def _pauses(now: Situation) -> Iterator[Concern]:
    for one in now.paused.pauses:
        queue = QUEUES.get(one.kind, one.name)
        why = f": {one.reason}" if one.reason else ""
        yield Concern(
            kind="paused",
            severity="low",
            text=f"{one.kind} {one.name} is paused by {one.paused_by}{why}",
            link="/console/agents",
            count=waiting_for(now.counts, queue, None if one.kind == "queue" else one.name, now),
            since=one.paused_at,
        )


def waiting_for(
    counts: Sequence[Count], queue: str, target: str | None, now: Situation | Directory
) -> int:
    """Count the events that wait in a queue, of one target or of all."""
    directory = now.directory if isinstance(now, Situation) else now
    names = {target, ""} if target == directory.routing.default else {target}
    return sum(
        one.ready + one.delayed + one.queued
        for one in counts
        if one.queue == queue and (target is None or one.target in names)
    )


def _by_agent(now: Situation) -> dict[str, list[Count]]:
    agents: dict[str, list[Count]] = {}
    for one in now.counts:
        if one.queue == INBOX:
            agents.setdefault(one.target or now.directory.routing.default, []).append(one)
    return agents


def _first(moments: Iterator[datetime | None]) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)


def _messages_of(agent: str) -> str:
    return f"/console/messages?agent={quote(agent, safe='')}"


FINDERS = (
    _database,
    _channels,
    _unserved_agents,
    _approvals,
    _dead,
    _providers,
    _waiting,
    _memory,
    _pairing,
    _pauses,
)
