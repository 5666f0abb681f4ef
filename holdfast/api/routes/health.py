"""Liveness, readiness and metrics of this process."""

from __future__ import annotations

import asyncio
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from holdfast.api.response import JsonResponse
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.scope import refuse_limited
from holdfast.api.state import Harness, state_of
from holdfast.channels import problems_of
from holdfast.channels.watermark import read_last_gaps
from holdfast.errors import HoldfastError
from holdfast.queue.metrics import read_gauges
from holdfast.telemetry import prometheus
from holdfast.telemetry.redaction import redact

READY_WITHIN_SECONDS = 2.0
"""Seconds within which the database must answer for this process to be ready."""

open_routes = APIRouter(tags=["health"])
routes = APIRouter(route_class=AuthorizedRoute, tags=["health"])


@open_routes.get("/healthz", summary="Check liveness", response_model=dict[str, str])
async def healthz(request: Request) -> JsonResponse:
    """The process is alive. Database outages do not fail this check. Channels with problems are
    named."""
    return JsonResponse({"status": "ok"} | problems_of(state_of(request).harness.channels))


@open_routes.get(
    "/readyz",
    summary="Check readiness",
    response_model=dict[str, str],
    responses={503: {"description": "Not ready.", "model": dict[str, str]}},
)
async def readyz(request: Request) -> JsonResponse:
    """The database answers and is migrated, and the process is not stopping. Channels with problems
    are named, and do not fail this check."""
    harness = state_of(request).harness
    problem = await _problem(harness)
    if problem is not None:
        return JsonResponse({"error": problem}, 503)
    return JsonResponse({"status": "ready"} | problems_of(harness.channels))


async def _problem(harness: Harness) -> str | None:
    if harness.stopping:
        return "stopping"
    try:
        async with asyncio.timeout(READY_WITHIN_SECONDS):
            await harness.store.setting("routing")
    except TimeoutError:
        return f"the database did not answer within {READY_WITHIN_SECONDS:g} s"
    except HoldfastError as error:
        return redact(str(error))
    return None


@routes.get(
    "/metrics",
    summary="Get metrics for Prometheus",
    response_class=Response,
    **route_options("read", None, None, content="text/plain"),
)
async def metrics(request: Request) -> Response:
    """Return metrics, even during an outage of the database."""
    await refuse_limited(request)
    harness = state_of(request).harness
    read_gaps = partial(read_last_gaps, harness.store, harness.channels)
    readings = await read_gauges(harness.store, harness.consumers, read_gaps)
    body, content_type = prometheus.exposition(readings, request.headers.get("accept", ""))
    return Response(body, headers={"content-type": content_type})
