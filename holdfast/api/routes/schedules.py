"""Schedules: list, add, pause, resume, run and remove them, and list their runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from holdfast.api.body import Body, read_body
from holdfast.api.paging import GREATEST_ID, KeyedPage, keyed_response
from holdfast.api.response import OK, ApiError, JsonResponse, Ok, StoredMessage
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import actor_of
from holdfast.api.security.scope import refuse_limited
from holdfast.api.state import state_of
from holdfast.chat import ChatStore
from holdfast.errors import WrongUsage
from holdfast.routing.schedules import add_for_agent, run_now
from holdfast.store.schedules import (
    Draft,
    Missed,
    Schedules,
    describe_run,
    describe_schedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    runs_of,
)

routes = APIRouter(route_class=AuthorizedRoute, tags=["schedules"])

LONGEST_TEXT = 100_000
ScheduleId = Annotated[str, Path(description="The id of a schedule.")]


class RunPage(BaseModel):
    """Runs, newest first."""

    model_config = ConfigDict(frozen=True)

    limit: int = Field(
        20, ge=1, le=1000, description="Maximum number of runs; a page also ends at 4 MiB."
    )
    before_id: int | None = Field(
        None, ge=0, le=GREATEST_ID, description="Only older runs; the header `Link` has it."
    )


class NewSchedule(Body):
    """A schedule to add."""

    timing: str = Field(max_length=200, description='Cron, "every 10 min", or an ISO time.')
    message: str = Field(max_length=LONGEST_TEXT, description="Text for the agent.")
    agent: str = Field("", description="Agent or team; empty for the default agent.")
    zone: str = Field("UTC", max_length=100, description="Time zone, such as Europe/Berlin.")
    to: str | None = Field(None, description="Conversation for the answers, such as slack:C123.")
    missed: Missed = Field("once", description="Runs to make up for: skip, once or all.")


class ListedSchedule(TypedDict):
    """A schedule."""

    id: str
    agent: str
    timing: str
    zone: str
    message: str
    to: str | None
    missed: str
    state: Literal["waiting", "paused", "ended"]
    source: str
    nextAt: int | None
    lastAt: int | None
    createdAt: int


class ListedRun(TypedDict):
    """A run of a schedule."""

    messageId: str
    ranAt: int
    status: str
    answer: str | None
    eventId: int | None


EXAMPLE: dict[str, Any] = {
    "id": "9f86d081",
    "agent": "coder",
    "timing": "0 9 * * mon-fri",
    "zone": "Europe/Berlin",
    "message": "prepare the stand-up",
    "to": "slack:C123",
    "missed": "once",
    "state": "waiting",
    "source": "person",
    "nextAt": 1767600000000,
    "lastAt": None,
    "createdAt": 1767225600000,
}


@routes.get(
    "/api/schedules",
    summary="List the schedules",
    **route_options("read", list[ListedSchedule], [EXAMPLE], 400),
)
async def get_schedules(request: Request, page: Annotated[KeyedPage, Query()]) -> JsonResponse:
    """List schedules by id. If there may be more, a header `Link` names the next page."""
    await refuse_limited(request)
    found = await Schedules(_store(request)).page(page.after, **page.within(request))
    return keyed_response(request, found, describe_schedule, lambda one: one.id)


@routes.post(
    "/api/schedules",
    summary="Add a schedule",
    **route_options(
        "admin",
        ListedSchedule,
        EXAMPLE,
        404,
        body=NewSchedule,
        given={
            "timing": "0 9 * * mon-fri",
            "zone": "Europe/Berlin",
            "agent": "coder",
            "message": "prepare the stand-up",
            "to": "slack:C123",
        },
    ),
)
async def post_schedule(request: Request) -> JsonResponse:
    """Add a schedule. It runs once over all processes."""
    new = await read_body(request, NewSchedule)
    draft = Draft(
        timing=new.timing,
        text=new.message,
        agent=new.agent,
        zone=new.zone,
        missed=new.missed,
        to=new.to,
    )
    routing = await state_of(request).routing()
    try:
        added = await add_for_agent(_store(request), routing, draft, actor=actor_of(request))
    except WrongUsage as error:
        raise ApiError(400, str(error)) from None
    return JsonResponse(describe_schedule(added))


@routes.post(
    "/api/schedules/{id}/pause",
    summary="Pause a schedule",
    **route_options("admin", ListedSchedule, EXAMPLE | {"state": "paused"}, 404),
)
async def pause(request: Request, id: ScheduleId) -> JsonResponse:
    """Pause a schedule until it is resumed, even over restarts."""
    changed = await pause_schedule(_store(request), id, actor=actor_of(request))
    return JsonResponse(describe_schedule(changed))


@routes.post(
    "/api/schedules/{id}/resume",
    summary="Resume a schedule",
    **route_options("admin", ListedSchedule, EXAMPLE, 404),
)
async def resume(request: Request, id: ScheduleId) -> JsonResponse:
    """Let a paused schedule run again; runs during the pause are not made up for."""
    changed = await resume_schedule(_store(request), id, actor=actor_of(request))
    return JsonResponse(describe_schedule(changed))


@routes.post(
    "/api/schedules/{id}/run",
    summary="Run a schedule now",
    **route_options("admin", StoredMessage, {"ok": True, "messageId": "schedule_9f86d081_…"}, 404),
)
async def run(request: Request, id: ScheduleId) -> JsonResponse:
    """Put the message of a schedule now; its next run stays."""
    state = state_of(request)
    message_id = await run_now(
        state.store,
        await state.routing(),
        id,
        max_attempts=state.settings.max_attempts,
        actor=actor_of(request),
    )
    return JsonResponse(StoredMessage(ok=True, messageId=message_id))


@routes.get(
    "/api/schedules/{id}/runs",
    summary="List the runs of a schedule",
    **route_options(
        "read",
        list[ListedRun],
        [
            {
                "messageId": "schedule_9f86d081_2026-01-05T08:00:00+00:00",
                "ranAt": 1767600000000,
                "status": "completed",
                "answer": "The stand-up is prepared.",
                "eventId": 42,
            }
        ],
        400,
        404,
    ),
)
async def get_runs(
    request: Request, id: ScheduleId, page: Annotated[RunPage, Query()]
) -> JsonResponse:
    """List the latest runs with their answers, newest first. If there may be more, a header `Link`
    names the next page."""
    await refuse_limited(request)
    store = _store(request)
    runs = await runs_of(
        store,
        await Schedules(store).find(id),
        page.limit,
        before_id=page.before_id,
        most_bytes=state_of(request).limits.page_bytes,
    )
    return keyed_response(request, runs, describe_run, lambda one: one.line_id, name="before_id")


@routes.delete(
    "/api/schedules/{id}",
    summary="Remove a schedule",
    **route_options("admin", Ok, {"ok": True}, 404),
)
async def delete_schedule(request: Request, id: ScheduleId) -> JsonResponse:
    """Delete a schedule; its messages stay."""
    await remove_schedule(_store(request), id, actor=actor_of(request))
    return JsonResponse(OK)


def _store(request: Request) -> ChatStore:
    return state_of(request).store
