"""Pauses: agents, channels and queues on which no process works for now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from holdfast.api.attention import waiting_for
from holdfast.api.body import Body, read_body
from holdfast.api.names import Printable
from holdfast.api.response import OK, ApiError, JsonResponse, Ok, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import Caller, actor_of, caller_of
from holdfast.api.security.scope import refuse_limited, scope_of, sees_agent
from holdfast.api.state import state_of
from holdfast.queue.store import Count
from holdfast.routing.directory import Directory
from holdfast.routing.pauses import check_pause
from holdfast.store.pauses import QUEUES, REASON_LENGTH, Pause, PauseKind, Pauses

routes = APIRouter(route_class=AuthorizedRoute, tags=["operations"])

NOT_PAUSED = "not paused"
Kind = Annotated[PauseKind, Path(description="agent, channel or queue.")]
PausedName = Annotated[str, Path(description="The name of what is paused.")]
Reason = Annotated[str, StringConstraints(max_length=REASON_LENGTH)]


class NewPause(Body):
    """Something to pause."""

    kind: PauseKind = Field(description="agent, channel or queue.")
    name: Printable = Field(description="The agent's id, or the name of the channel or queue.")
    reason: Reason | None = Field(None, description="The reason, for other operators.")


class ShownPause(TypedDict):
    """A pause, by whom and since when."""

    kind: str
    name: str
    reason: str | None
    by: str
    at: int


class ListedPause(ShownPause):
    """A pause, and how many events wait for its end."""

    waiting: int


EXAMPLE: dict[str, Any] = {
    "kind": "agent",
    "name": "coder",
    "reason": "deploying",
    "by": "session:ada",
    "at": 1767225600000,
}


@routes.get(
    "/api/pauses",
    summary="List what is paused",
    **route_options("read", list[ListedPause], [{**EXAMPLE, "waiting": 3}]),
)
async def get_pauses(request: Request) -> JsonResponse:
    """List pauses by kind and name. A bound token sees those of its agents and channels."""
    state, caller = state_of(request), caller_of(request)
    if (scope := await scope_of(request)) is not None and scope.sent_by is not None:
        await refuse_limited(request)
    directory, counts = await state.directory(), await state.counts.get()
    pauses = (await Pauses(state.store).all()).pauses
    return JsonResponse(
        [_listed_pause(one, counts, directory) for one in pauses if _sees(caller, one)]
    )


def _listed_pause(one: Pause, counts: Sequence[Count], directory: Directory) -> ListedPause:
    queue, target = QUEUES.get(one.kind, one.name), None if one.kind == "queue" else one.name
    waiting = waiting_for(counts, queue, target, directory)
    return ListedPause(**shown_pause(one), waiting=waiting)


@routes.post(
    "/api/pauses",
    summary="Pause an agent, a channel or a queue",
    **route_options(
        "admin",
        ShownPause,
        EXAMPLE,
        404,
        409,
        body=NewPause,
        given={"kind": "agent", "name": "coder", "reason": "deploying"},
    ),
)
async def pause(request: Request) -> JsonResponse:
    """Pause an agent, a channel or a queue in all processes, over restarts, until it is resumed.

    Running turns go on. Messages for a paused agent are stored and wait; a paused channel still
    receives, and its responses wait. Nothing expires meanwhile. A second pause only changes the
    reason. 409 for a channel whose responses clients fetch themselves."""
    await refuse_limited(request)
    given, state = await read_body(request, NewPause), state_of(request)
    problem = check_pause(given.kind, given.name, await state.directory())
    if problem is not None:
        raise ApiError(409 if problem.is_conflict else 404, problem.text)
    reason = (given.reason or "").strip() or None
    made = await Pauses(state.store).pause(given.kind, given.name, reason, actor=actor_of(request))
    state.current.forget()
    return JsonResponse(shown_pause(made))


@routes.delete(
    "/api/pauses/{kind}/{name:path}",
    summary="Resume an agent, a channel or a queue",
    **route_options("admin", Ok, {"ok": True}, 400, 404),
)
async def resume(request: Request, kind: Kind, name: PausedName) -> JsonResponse:
    """Let processes work on an agent, a channel or a queue again, at once."""
    await refuse_limited(request)
    state = state_of(request)
    if not await Pauses(state.store).resume(kind, name, actor=actor_of(request)):
        raise ApiError(404, NOT_PAUSED)
    state.current.forget()
    return JsonResponse(OK)


def shown_pause(one: Pause) -> ShownPause:
    """Return a pause as the API shows it."""
    return ShownPause(
        kind=one.kind,
        name=one.name,
        reason=one.reason,
        by=one.paused_by,
        at=millis(one.paused_at),
    )


def _sees(caller: Caller, one: Pause) -> bool:
    rights = caller.credential
    if one.kind == "agent":
        return sees_agent(caller, one.name)
    bound = None if rights is None else rights.channels
    return bound is None or (one.kind == "channel" and one.name in bound)
