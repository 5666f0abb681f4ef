"""The application: what answers HTTP for a harness."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from holdfast import gauge
from holdfast.consumer import Consumer
from holdfast.errors import HoldfastError
from holdfast.store.base import Store
from holdfast.telemetry import prometheus
from holdfast.telemetry.logs import redact

PATIENCE = 2.0
"""Seconds within which the database must answer for this process to be ready."""

PHRASES = {404: "Not found", 405: "Method not allowed"}


class Harness(Protocol):
    """What the routes need of the harness that they answer for."""

    @property
    def store(self) -> Store:
        """Raises HoldfastError unless the harness runs."""

    @property
    def stopping(self) -> bool:
        """Whether a stop was asked for."""

    @property
    def consumers(self) -> Sequence[Consumer]:
        """What it works with, if it works."""


def create_app(harness: Harness) -> FastAPI:
    """The whole API."""
    return _application(harness)


def create_metrics_app(harness: Harness) -> FastAPI:
    """Health and metrics alone, for a process that only works."""
    return _application(harness)


def _application(harness: Harness) -> FastAPI:
    app = FastAPI(title="Holdfast", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.harness = harness
    app.add_exception_handler(HTTPException, _refused)
    app.add_api_route("/healthz", healthz, methods=["GET"])
    app.add_api_route("/readyz", readyz, methods=["GET"], response_model=None)
    app.add_api_route("/metrics", metrics, methods=["GET"], response_model=None)
    return app


async def healthz() -> dict[str, str]:
    """The process lives and its loop turns; a database that is away does not make it sick."""
    return {"status": "ok"}


async def readyz(request: Request) -> JSONResponse:
    """Whether a message would be taken now: the database answers, it has our tables, and no stop was asked for."""
    problem = await _problem(request.app.state.harness)
    return JSONResponse({"status": "ready"} if problem is None else {"error": problem}, 503 if problem else 200)


async def _problem(harness: Harness) -> str | None:
    if harness.stopping:
        return "stopping"
    try:
        async with asyncio.timeout(PATIENCE):
            await harness.store.setting("routing")
    except TimeoutError:
        return f"the database did not answer within {PATIENCE:g} s"
    except HoldfastError as error:
        return redact(str(error))
    return None


async def metrics(request: Request) -> Response:
    """For Prometheus; also while the database is away."""
    harness: Harness = request.app.state.harness
    readings = await gauge.read(harness.store, harness.consumers)
    body, content_type = prometheus.exposition(readings, request.headers.get("accept", ""))
    return Response(body, headers={"content-type": content_type})


async def _refused(_: Request, error: Any) -> JSONResponse:
    return JSONResponse(
        {"error": PHRASES.get(error.status_code, error.detail)}, error.status_code, headers=error.headers
    )
