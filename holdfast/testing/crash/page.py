"""The page of the demonstration: the growing answer, its steps, and a button that kills."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from holdfast.api.response import ApiError, JsonResponse
from holdfast.api.routes.static_files import read_pages
from holdfast.api.state import state_of
from holdfast.testing.crash.workers import Workers


def routes_for(workers: Workers) -> APIRouter:
    """Build the routes of the page. They need no login: the demonstration listens on loopback."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/demo")
    async def get_page(request: Request) -> Response:
        return read_pages(__package__)["index.html"].answer(request)

    @routes.get("/demo/static/{name}")
    async def get_file(request: Request, name: str) -> Response:
        page = read_pages(__package__).get(name)
        if page is None:
            raise ApiError(404, "Not found")
        return page.answer(request)

    @routes.get("/demo/workers")
    async def get_workers(request: Request) -> JsonResponse:
        busy = await workers.busy(state_of(request).store)
        return JsonResponse({"running": workers.pids, "busy": busy, "killed": workers.killed})

    @routes.post("/demo/kill")
    async def kill_worker(request: Request) -> JsonResponse:
        busy = await workers.busy(state_of(request).store)
        if busy is None:
            raise ApiError(409, "no worker is busy; ask for the report first")
        workers.kill(busy)
        return JsonResponse({"killed": busy})

    return routes
