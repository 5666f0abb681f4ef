"""GET /api/stats: throughput, failures and time to answer over an hour, a day or a week."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from holdfast.api.names import Printable
from holdfast.api.response import JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import caller_of
from holdfast.api.security.scope import refuse_agents, refuse_limited, scope_of
from holdfast.api.state import state_of
from holdfast.queue.event import INBOX
from holdfast.store.statistics import WINDOWS, Numbers, WindowName, add_up, read_series

routes = APIRouter(route_class=AuthorizedRoute, tags=["operations"])


class StatsQuery(BaseModel):
    """The time to show, and whose events to count."""

    model_config = ConfigDict(frozen=True)

    window: WindowName = Field(
        "hour", description="hour: 60 buckets of a minute; day: 96 of 15 minutes; week: 84 of 2 h."
    )
    queue: Printable = Field(INBOX, description="The queue: inbox, outbox, memory or one of yours.")
    agent: Printable | None = Field(
        None, description="Only this agent; of the outbox, only this channel."
    )


class EventNumbers(TypedDict):
    """Numbers of events. `p50` and `p95` are milliseconds from receipt to end of completed ones."""

    received: int
    completed: int
    failed: int
    p50: int | None
    p95: int | None
    tokens: int
    cost: float


class Bucket(EventNumbers):
    """Numbers of a span of time that begins at `at`."""

    at: int


class Stats(TypedDict):
    """All buckets of the window, oldest first, and their sum. The last bucket still grows."""

    window: str
    queue: str
    agent: str | None
    step: int
    buckets: list[Bucket]
    total: EventNumbers


NUMBERS: dict[str, Any] = {
    "received": 12,
    "completed": 11,
    "failed": 1,
    "p50": 1800,
    "p95": 9200,
    "tokens": 5300,
    "cost": 0.02,
}
EXAMPLE: dict[str, Any] = {
    "window": "hour",
    "queue": "inbox",
    "agent": None,
    "step": 60000,
    "buckets": [{"at": 1767222000000, **NUMBERS}],
    "total": NUMBERS,
}


@routes.get(
    "/api/stats",
    summary="Get numbers by time",
    **route_options("read", Stats, EXAMPLE, 400),
)
async def get_stats(request: Request, query: Annotated[StatsQuery, Query()]) -> JsonResponse:
    """Count events by the time at which they were received or ended. Percentiles are accurate to
    about 5 %. A dead letter that is retried stays counted as failed, and counts again when it
    ends."""
    await _refuse_foreign(request, query.agent)
    state, window = state_of(request), WINDOWS[query.window]
    targets = _targets(query, (await state.routing()).default)
    series = await read_series(state.store, window, query.queue, targets)
    answer = Stats(
        window=query.window,
        queue=query.queue,
        agent=query.agent,
        step=window.width // timedelta(milliseconds=1),
        buckets=[_bucket(at, numbers) for at, numbers in series.items()],
        total=numbers_to_show(add_up(series.values())),
    )
    return JsonResponse(answer)


def _targets(query: StatsQuery, default: str) -> list[str] | None:
    """Return the targets to count; messages that name no agent are for the default one."""
    if query.agent is None:
        return None
    is_default = query.agent == default and query.queue == INBOX
    return [default, ""] if is_default else [query.agent]


async def _refuse_foreign(request: Request, agent: str | None) -> None:
    """Let a caller who is bound to agents alone ask for one of them; refuse other limited ones."""
    scope = await scope_of(request)
    if scope is None:
        return
    if agent is None or scope.sent_by is not None or scope.channels is not None:
        await refuse_limited(request)
    else:
        refuse_agents(caller_of(request), [agent])


def _bucket(at: datetime, numbers: Numbers) -> Bucket:
    return Bucket(at=millis(at), **numbers_to_show(numbers))


def numbers_to_show(numbers: Numbers) -> EventNumbers:
    """Return numbers as the API shows them."""
    return EventNumbers(
        received=numbers.received,
        completed=numbers.completed,
        failed=numbers.failed,
        p50=numbers.percentile(0.5),
        p95=numbers.percentile(0.95),
        tokens=numbers.tokens,
        cost=round(numbers.cost, 6),
    )
