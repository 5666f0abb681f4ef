"""The FastAPI application of a harness."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from holdfast import __version__
from holdfast.api import stream
from holdfast.api.body import describe_error
from holdfast.api.feed import Feed
from holdfast.api.limits import Limits
from holdfast.api.response import ApiError, JsonResponse
from holdfast.api.routes import (
    agent_stats,
    agents,
    audit,
    conversation_export,
    conversation_lines,
    conversation_search,
    conversations,
    dead,
    dead_groups,
    docs,
    events,
    files,
    health,
    login,
    memory,
    message_control,
    message_list,
    message_status,
    message_stream,
    messages,
    observations,
    overview,
    pairing,
    pauses,
    queue,
    render,
    responses,
    rooms,
    schedules,
    sessions,
    static_files,
    stats,
    status,
    webhook,
)
from holdfast.api.routes import oidc as oidc_routes
from holdfast.api.routes import tokens as token_routes
from holdfast.api.security.caller import Callers
from holdfast.api.security.guard import Access, Guard
from holdfast.api.security.oidc import Provider
from holdfast.api.state import ApiState, Harness
from holdfast.errors import HoldfastError, StoreUnavailable, Unknown
from holdfast.telemetry import REQUEST_FAILED
from holdfast.telemetry.logs import Entry
from holdfast.telemetry.redaction import redact

log = logging.getLogger(__name__)

CORS: dict[str, Any] = {
    "allow_methods": ["GET", "POST", "DELETE"],
    "allow_headers": ["authorization", "content-type", "last-event-id"],
    "expose_headers": ["link", "x-next-before-id", "x-next-since-id", "x-searched-to"],
}
DEFAULT_LIMITS = Limits()
PHRASES = {404: "Not found", 405: "Method not allowed"}

# The busiest routes come first: routes are tried in this order.
FAMILIES = [
    family.routes
    for family in (
        messages,
        message_stream,
        message_control,
        message_status,
        responses,
        files,
        queue,
        dead,
        conversation_lines,
        conversation_export,
        conversation_search,
        dead_groups,
        message_list,
        overview,
        stats,
        conversations,
        render,
        agents,
        agent_stats,
        rooms,
        observations,
        memory,
        schedules,
        audit,
        stream,
        events,
        status,
        docs,
        static_files,
        login,
        token_routes,
        sessions,
        pairing,
        pauses,
    )
]


def create_app(harness: Harness, host: str, limits: Limits = DEFAULT_LIMITS) -> FastAPI:
    """Create the whole API, to be served at `host`."""
    app = _application(harness, host, limits)
    app.state.feed = Feed(lambda: harness.store, limits)
    open_routes = (static_files.open_routes, login.open_routes, oidc_routes.open_routes)
    _add_routes(app, *FAMILIES, *open_routes)
    app.state.reserved_paths |= webhook.mount(app, harness.channels.values())
    return _with_health(app)


def create_metrics_app(harness: Harness, host: str, limits: Limits = DEFAULT_LIMITS) -> FastAPI:
    """Create an API of health and metrics alone, for a process without the full API."""
    return _with_health(_application(harness, host, limits, metrics=True))


def _application(harness: Harness, host: str, limits: Limits, *, metrics: bool = False) -> FastAPI:
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        summary="A durable runtime for chat agents",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        # FastAPI's own spans are not sampled, and its logs show errors without redaction.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    state = app.state.api = ApiState(harness, limits)
    app.state.reserved_paths = {"/healthz", "/readyz"}
    settings = state.settings
    app.state.oidc = Provider(settings, limits) if settings.oidc_issuer else None
    callers = Callers(lambda: harness.store, limits.caller_cache_seconds)
    access = app.state.access = Access.of(settings, host, callers, limits, metrics=metrics)
    if access.origins:
        app.add_middleware(CORSMiddleware, allow_origins=sorted(access.origins), **CORS)
    # Middleware that is added last runs first.
    app.add_middleware(Guard, access=access)
    handlers: dict[Any, Any] = {
        HTTPException: _no_route,
        RequestValidationError: _invalid,
        ApiError: _answer_refusal,
        Unknown: _unknown,
        StoreUnavailable: _unavailable,
        Exception: _answer_failure,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    return app


def _with_health(app: FastAPI) -> FastAPI:
    _add_routes(app, health.open_routes, health.routes)
    return app


def _add_routes(app: FastAPI, *families: APIRouter) -> None:
    """Add routes as they are. An included router would build each again for every application, and
    match each request a second time."""
    app.router.routes.extend(route for family in families for route in family.routes)


async def _no_route(_: Request, error: HTTPException) -> JsonResponse:
    headers = dict(error.headers) if error.headers else None
    return JsonResponse(
        {"error": PHRASES.get(error.status_code, error.detail)}, error.status_code, headers
    )


async def _invalid(_: Request, error: RequestValidationError) -> JsonResponse:
    return JsonResponse({"error": describe_error(error.errors()[0])}, 400)


async def _answer_refusal(_: Request, error: ApiError) -> JsonResponse:
    return error.answer


async def _unknown(_: Request, error: Unknown) -> JsonResponse:
    return JsonResponse({"error": str(error)}, 404)


async def _unavailable(_: Request, error: HoldfastError) -> JsonResponse:
    return JsonResponse({"error": redact(str(error))}, 503, {"retry-after": "1"})


async def _answer_failure(request: Request, error: Exception) -> JsonResponse:
    """Log an unexpected error; the client gets no details."""
    log.error(Entry(REQUEST_FAILED, path=request.url.path, error=error))
    return JsonResponse({"error": "internal error; see the log of the server"}, 500)
