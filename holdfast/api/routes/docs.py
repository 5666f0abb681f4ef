"""The OpenAPI document, and a page of our own that shows it."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, FastAPI, Request

from holdfast.api.response import JsonResponse
from holdfast.api.route import ROLE, AuthorizedRoute, route_options

routes = APIRouter(route_class=AuthorizedRoute, tags=["documentation"])

SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "From `holdfast token`."},
}


@routes.get(
    "/openapi.json",
    summary="Get the OpenAPI document",
    **route_options("read", dict[str, Any], {"openapi": "3.1.0"}),
)
async def get_openapi(request: Request) -> JsonResponse:
    """Return the OpenAPI document of this API."""
    # In a thread: the first call takes a quarter of a second.
    return JsonResponse(await asyncio.to_thread(document_of, request.app))


def document_of(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with roles and without FastAPI's 422, which is never sent."""
    document = app.openapi()
    document.setdefault("components", {})["securitySchemes"] = SCHEMES
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            if ROLE in operation:
                operation["security"] = [{"bearer": []}]
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"].get("schemas", {}).pop(name, None)
    return document
