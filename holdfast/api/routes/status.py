"""GET /api/status: one look at the process, its channels and its heartbeats."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request
from typing_extensions import TypedDict

from holdfast.api.response import JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import caller_of
from holdfast.api.security.scope import sees_agent, sees_channel
from holdfast.api.state import state_of
from holdfast.store.schedules import Schedule, Schedules

routes = APIRouter(route_class=AuthorizedRoute, tags=["health"])


class Heartbeats(TypedDict):
    """Heartbeats of all agents: the shortest interval in seconds, and the last one of each."""

    running: bool
    interval: float
    lastSent: dict[str, int]


class SystemStatus(TypedDict):
    """The process that answers, and the channels that live processes serve."""

    ok: bool
    uptime: int
    server: dict[str, Any]
    channels: dict[str, dict[str, Any]]
    heartbeat: Heartbeats


@routes.get(
    "/api/status",
    summary="Get the status of the process",
    **route_options(
        "read",
        SystemStatus,
        {
            "ok": True,
            "uptime": 60,
            "server": {"running": True, "port": 3777},
            "channels": {"slack": {"running": True}},
            "heartbeat": {"running": False, "interval": 0, "lastSent": {}},
        },
    ),
)
async def get_status(request: Request) -> JsonResponse:
    """Return the status in TinyAGI's format. `running` of a channel is false if it has a problem in
    this process."""
    state = state_of(request)
    directory = await state.directory()
    problems = {name: list(channel.problems) for name, channel in state.harness.channels.items()}
    return JsonResponse(
        SystemStatus(
            ok=True,
            uptime=int(time.monotonic() - state.started_at),
            server={"running": True, "port": request.url.port or state.settings.api_port},
            channels={
                name: {"running": not problems.get(name)}
                for name in sorted(directory.channels)
                if sees_channel(caller_of(request), name)
            },
            heartbeat=_heartbeats(
                [
                    one
                    for one in await Schedules(state.store).all()
                    if one.is_heartbeat and sees_agent(caller_of(request), one.agent)
                ]
            ),
        )
    )


def _heartbeats(schedules: list[Schedule]) -> Heartbeats:
    live = [one for one in schedules if one.state == "waiting"]
    return Heartbeats(
        running=bool(live),
        interval=min((one.interval.total_seconds() for one in live), default=0),
        lastSent={one.agent: millis(one.last_at) for one in schedules if one.last_at is not None},
    )
