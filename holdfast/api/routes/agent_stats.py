"""GET /api/agents/stats: load, success, latency and cost of each agent, and who serves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from holdfast.api.response import JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.routes.agents import AgentPause, agent_pause
from holdfast.api.security.caller import caller_of
from holdfast.api.security.scope import refuse_limited, scope_of, sees_agent
from holdfast.api.state import ApiState, state_of
from holdfast.queue.event import INBOX
from holdfast.queue.store import Count, Process
from holdfast.routing.directory import Directory
from holdfast.store.overview import OverviewReads, RunningTurn
from holdfast.store.statistics import WINDOWS, Numbers, WindowName, add_up, read_by_target

routes = APIRouter(route_class=AuthorizedRoute, tags=["agents"])

MOST_LANES = 20


class WindowQuery(BaseModel):
    """The time over which to count."""

    model_config = ConfigDict(frozen=True)

    window: WindowName = Field("day", description="The last hour, day or week.")


class LaneInProgress(TypedDict):
    """A lane that is being worked, by which process and since when."""

    lane: str | None
    eventId: int
    messageId: str | None
    since: int
    worker: str | None


class Server(TypedDict):
    """A process that serves an agent; `version` is null before 0.8.0."""

    process: str
    host: str
    version: str | None


class AgentStats(TypedDict):
    """The load of an agent now, and its numbers in the window. Times are milliseconds."""

    pending: int
    queued: int
    processing: int
    limit: int | None
    completed: int
    failed: int
    success: float | None
    p50: int | None
    p95: int | None
    tokens: int
    cost: float
    lanes: list[LaneInProgress]
    processes: list[Server]
    paused: AgentPause | None


EXAMPLE: dict[str, Any] = {
    "pending": 3,
    "queued": 1,
    "processing": 1,
    "limit": None,
    "completed": 40,
    "failed": 1,
    "success": 0.976,
    "p50": 1800,
    "p95": 9200,
    "tokens": 5300,
    "cost": 0.02,
    "lanes": [
        {
            "lane": "coder/api:Ada",
            "eventId": 7,
            "messageId": "api_m8boovyb",
            "since": 1767225600000,
            "worker": "host-4711_m8boovyb",
        }
    ],
    "processes": [{"process": "host-4711_m8boovyb", "host": "host", "version": "0.8.0"}],
    "paused": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """One reading of all agents."""

    directory: Directory
    counts: Sequence[Count]
    running: Sequence[RunningTurn]
    processes: Sequence[Process]
    numbers: dict[str, Numbers]

    def names(self, agent: str) -> set[str]:
        """Return the targets of an agent: messages that name none are for the default one."""
        return {agent, ""} if agent == self.directory.routing.default else {agent}


@routes.get(
    "/api/agents/stats",
    summary="Get the numbers of all agents",
    **route_options("read", dict[str, AgentStats], {"coder": EXAMPLE}, 400),
)
async def get_agent_stats(request: Request, query: Annotated[WindowQuery, Query()]) -> JsonResponse:
    """Return numbers by agent. `success` is the share of completed messages among those that ended;
    `lanes` are those in progress, longest running first, at most 20. A token bound to agents sees
    its own."""
    scope = await scope_of(request)
    if scope is not None and (scope.sent_by is not None or scope.channels is not None):
        await refuse_limited(request)
    caller, facts = caller_of(request), await _read_facts(state_of(request), query.window)
    agents = sorted(facts.directory.routing.lanes)
    return JsonResponse({one: _stats(one, facts) for one in agents if sees_agent(caller, one)})


async def _read_facts(state: ApiState, window: WindowName) -> _Facts:
    return _Facts(
        directory=await state.directory(),
        counts=await state.counts.get(),
        running=await OverviewReads(state.store).running(),
        processes=await state.store.processes(),
        numbers=await read_by_target(state.store, WINDOWS[window], INBOX),
    )


def _stats(agent: str, facts: _Facts) -> AgentStats:
    names, directory = facts.names(agent), facts.directory
    own = [one for one in facts.counts if one.queue == INBOX and one.target in names]
    numbers = add_up(facts.numbers[name] for name in names if name in facts.numbers)
    success = numbers.success
    return AgentStats(
        pending=sum(one.ready + one.delayed + one.queued for one in own),
        queued=sum(one.queued for one in own),
        processing=sum(one.leased for one in own),
        limit=directory.routing.limits.get(agent),
        completed=numbers.completed,
        failed=numbers.failed,
        success=None if success is None else round(success, 3),
        p50=numbers.percentile(0.5),
        p95=numbers.percentile(0.95),
        tokens=numbers.tokens,
        cost=round(numbers.cost, 6),
        lanes=[_lane(one) for one in facts.running if one.queue == INBOX and one.target in names][
            :MOST_LANES
        ],
        processes=_servers(agent, facts),
        paused=agent_pause(directory, agent),
    )


def _lane(turn: RunningTurn) -> LaneInProgress:
    return LaneInProgress(
        lane=turn.lane,
        eventId=turn.event_id,
        messageId=turn.message_id,
        since=millis(turn.since),
        worker=turn.holder,
    )


def _servers(agent: str, facts: _Facts) -> list[Server]:
    serving = set(facts.directory.servers.get(agent, ()))
    return [
        Server(process=one.id, host=one.host, version=one.version)
        for one in facts.processes
        if one.id in serving
    ]
