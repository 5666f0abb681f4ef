"""Health of the parts that an installation depends on: channels, model providers, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from holdfast.queue.event import MEMORY
from holdfast.queue.store import Count, Process
from holdfast.routing.directory import CHANNELS, PROVIDERS, Directory
from holdfast.store.overview import DeadCount, ModelFailure
from holdfast.store.statistics import Numbers

Status = Literal["ok", "warning", "failing", "unknown"]

FAILURES_WITHIN = timedelta(minutes=15)
"""Age up to which failures of a provider count."""
LATE_INDEX = timedelta(minutes=1)
"""The index lags if its oldest pending change of memory is older than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    """A channel, the processes that serve it, and their problems with it."""

    channel: str
    status: Status
    processes: Sequence[str]
    problems: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderHealth:
    """A provider of language models, and its failures of the last quarter of an hour."""

    provider: str
    agents: Sequence[str]
    status: Status
    failures: int
    last_error: str | None = None
    last_error_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHealth:
    """Changes of memory that are not in the index yet."""

    status: Status
    pending: int
    oldest_at: datetime | None
    dead: int


def channel_health(processes: Sequence[Process]) -> list[ChannelHealth]:
    """Return the channels of all processes, by name."""
    served: dict[str, list[str]] = {}
    problems: dict[str, list[str]] = {}
    for process in processes:
        for channel in (process.serves or {}).get(CHANNELS, ()):
            served.setdefault(channel, []).append(process.id)
        for channel, problem in process.problems.items():
            served.setdefault(channel, [])
            problems.setdefault(channel, []).append(str(problem))
    return [
        ChannelHealth(
            channel=channel,
            status="failing" if channel in problems else "ok",
            processes=served[channel],
            problems=problems.get(channel, []),
        )
        for channel in sorted(served)
    ]


def provider_health(
    processes: Sequence[Process],
    failures: Sequence[ModelFailure],
    lately: Mapping[str, Numbers],
    directory: Directory,
) -> list[ProviderHealth]:
    """Return the providers of all agents; `lately` has the numbers of each agent."""
    default = directory.routing.default
    return [
        _provider(
            provider,
            sorted(own),
            [one for one in failures if (one.target or default) in own],
            sum(n.completed for target, n in lately.items() if (target or default) in own),
        )
        for provider, own in sorted(_agents_by_provider(processes).items())
    ]


def _agents_by_provider(processes: Sequence[Process]) -> dict[str, set[str]]:
    agents: dict[str, set[str]] = {}
    for process in processes:
        for agent, provider in ((process.serves or {}).get(PROVIDERS) or {}).items():
            agents.setdefault(str(provider), set()).add(agent)
    return agents


def _provider(
    provider: str, agents: list[str], failures: Sequence[ModelFailure], completed: int
) -> ProviderHealth:
    last = failures[0] if failures else None
    status: Status = "ok" if completed else "unknown"
    if failures:
        status = "warning" if completed else "failing"
    return ProviderHealth(
        provider=provider,
        agents=agents,
        status=status,
        failures=len(failures),
        last_error=None if last is None else last.error[:500],
        last_error_at=None if last is None else last.at,
    )


def memory_health(
    counts: Sequence[Count], dead: Sequence[DeadCount], now: datetime
) -> MemoryHealth:
    """Return how far the index lags behind the observations."""
    own = [one for one in counts if one.queue == MEMORY]
    oldest = min((one.pending_since for one in own if one.pending_since), default=None)
    number = sum(one.count for one in dead if one.queue == MEMORY)
    is_late = oldest is not None and now - oldest > LATE_INDEX
    return MemoryHealth(
        status="warning" if is_late or number else "ok",
        pending=sum(one.ready + one.delayed + one.queued + one.leased for one in own),
        oldest_at=oldest,
        dead=number,
    )
