"""Dead letters in groups: listed, retried and discarded together, with a note for each."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from typing_extensions import TypedDict

from holdfast.api.body import Body, read_body
from holdfast.api.names import Printable
from holdfast.api.paging import Bounds
from holdfast.api.response import OK, ApiError, JsonResponse, Ok, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import actor_of
from holdfast.api.security.scope import refuse_limited
from holdfast.api.state import state_of
from holdfast.queue.journal import EFFECT_UNKNOWN, Assume
from holdfast.store.dead_groups import (
    GROUP_ID,
    NOTE_LENGTH,
    ChangeResult,
    DeadGroup,
    DeadGroups,
    Note,
    Selection,
)

routes = APIRouter(route_class=AuthorizedRoute, tags=["dead letters"])

NOT_FOUND = "group not found"
GroupId = Annotated[str, StringConstraints(pattern=f"^{GROUP_ID.pattern}$")]
ErrorText = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Ids = Annotated[list[int], Field(max_length=1000)]


class GroupQuery(BaseModel):
    """The groups of one queue, or of all."""

    model_config = ConfigDict(frozen=True)

    queue: Printable | None = Field(None, description="Only this queue.")


class DiscardSelection(Body):
    """The dead letters to change: `group`, `ids`, or all that match `queue`, `agent`, `errorClass`
    and `text`. Without any of them, `all` must be true."""

    group: GroupId | None = Field(None, description="All letters of a group.")
    ids: Ids | None = Field(None, description="These letters.")
    queue: Printable | None = Field(None, description="Letters of this queue.")
    agent: Printable | None = Field(
        None, description="Letters of this agent; in the outbox, of this channel."
    )
    error_class: Printable | None = Field(None, description="Letters of this class of error.")
    text: ErrorText | None = Field(None, description="A part of the error, in any case.")
    all: bool = Field(False, description="All letters; needed if nothing else is given.")
    dry_run: bool = Field(False, description="Only count.")

    @property
    def selection(self) -> Selection:
        given = Selection(
            ids=self.ids,
            group=self.group,
            queue=self.queue,
            target=self.agent,
            error_class=self.error_class,
            text=self.text,
        )
        if given == Selection() and not self.all:
            raise ApiError(400, 'name the letters, or give {"all": true}')
        return given


class RetrySelection(DiscardSelection):
    """The dead letters to retry."""

    assume: Assume | None = Field(
        None,
        description="For the errorClass EffectUnknown: take the call as done, or run it again.",
    )


class GroupNote(Body):
    """A note on a group; an empty text removes it."""

    group: GroupId = Field(description="The group.")
    text: Annotated[str, StringConstraints(max_length=NOTE_LENGTH)] = Field(
        description="The note; empty to remove it."
    )


class ShownNote(TypedDict):
    """A note, by whom and when."""

    text: str
    by: str
    at: int


class ShownGroup(TypedDict):
    """Dead letters of one cause."""

    group: str
    queue: str
    agent: str
    errorClass: str | None
    cause: str
    count: int
    newestAt: int
    oldestAt: int
    newestId: int
    needsAssume: bool
    note: ShownNote | None


class ShownChange(TypedDict):
    """The number of letters changed, or to be changed; those left out; whether more are left."""

    count: int
    skipped: int
    more: bool
    dryRun: bool


EXAMPLE: dict[str, Any] = {
    "group": "5d41402abc4b2a76",
    "queue": "inbox",
    "agent": "coder",
    "errorClass": "RuntimeError",
    "cause": "RuntimeError: order … failed",
    "count": 12,
    "newestAt": 1767225600000,
    "oldestAt": 1767220000000,
    "newestId": 70,
    "needsAssume": False,
    "note": {"text": "Ada looks at it", "by": "session:ada", "at": 1767225600000},
}
CHANGE = {"count": 12, "skipped": 0, "more": False, "dryRun": True}


@routes.get(
    "/api/dead/groups",
    summary="List dead letters in groups",
    **route_options("read", list[ShownGroup], [EXAMPLE], 400),
)
async def get_groups(request: Request, query: Annotated[GroupQuery, Query()]) -> JsonResponse:
    """Group dead letters by queue, agent, error class and cause: the first line of the error
    without numbers, ids and quoted texts. The group with the newest letter comes first; at most 500
    groups. `GET /api/queue/dead?group=…` lists the letters of a group."""
    await refuse_limited(request)
    groups = await (await _groups(request)).all(query.queue)
    return JsonResponse([_group_to_show(group) for group in groups])


@routes.post(
    "/api/dead/groups/retry",
    summary="Retry dead letters together",
    **route_options(
        "admin",
        ShownChange,
        CHANGE,
        body=RetrySelection,
        given={"group": "5d41402abc4b2a76", "dryRun": True},
    ),
)
async def retry_groups(request: Request) -> JsonResponse:
    """Retry all letters of a selection, at most 10,000 in one call. Those of the errorClass
    EffectUnknown are skipped without `assume`. `count` is what this call did, even if somebody else
    works on the same letters."""
    await refuse_limited(request)
    given = await read_body(request, RetrySelection)
    changed = await (await _groups(request)).retry(
        given.selection, actor=actor_of(request), assume=given.assume, dry_run=given.dry_run
    )
    return JsonResponse(_change(changed, dry_run=given.dry_run))


@routes.post(
    "/api/dead/groups/discard",
    summary="Discard dead letters together",
    **route_options(
        "admin",
        ShownChange,
        CHANGE,
        body=DiscardSelection,
        given={"group": "5d41402abc4b2a76", "dryRun": True},
    ),
)
async def discard_groups(request: Request) -> JsonResponse:
    """Delete payload and error of all letters of a selection, at most 10,000 in one call."""
    await refuse_limited(request)
    given = await read_body(request, DiscardSelection)
    changed = await (await _groups(request)).discard(
        given.selection, actor=actor_of(request), dry_run=given.dry_run
    )
    return JsonResponse(_change(changed, dry_run=given.dry_run))


@routes.post(
    "/api/dead/groups/note",
    summary="Write a note on a group of dead letters",
    **route_options(
        "admin",
        Ok,
        {"ok": True},
        404,
        body=GroupNote,
        given={"group": "5d41402abc4b2a76", "text": "Ada looks at it"},
    ),
)
async def note_group(request: Request) -> JsonResponse:
    """Write the note of a group, for all operators. It stays while the group has letters, and at
    least 90 days."""
    await refuse_limited(request)
    given, groups = await read_body(request, GroupNote), await _groups(request)
    if await groups.find(given.group) is None:
        raise ApiError(404, NOT_FOUND)
    await groups.note(given.group, given.text.strip(), actor=actor_of(request))
    return JsonResponse(OK)


async def dead_ids_of(request: Request, group: str, bounds: Bounds) -> tuple[list[int], bool]:
    """Return ids of a page of a group's letters, and whether there are more."""
    groups = await _groups(request)
    found = await groups.find(group) if GROUP_ID.fullmatch(group) else None
    if found is None:
        return [], False
    limit = bounds["limit"]
    ids = await groups.dead_ids(
        found, before_id=bounds["before_id"], since_id=bounds["since_id"], limit=limit + 1
    )
    return ids[:limit], len(ids) > limit


async def _groups(request: Request) -> DeadGroups:
    state = state_of(request)
    return DeadGroups(state.store, (await state.routing()).default)


def _group_to_show(group: DeadGroup) -> ShownGroup:
    return ShownGroup(
        group=group.id,
        queue=group.queue,
        agent=group.target,
        errorClass=group.error_class,
        cause=group.cause,
        count=group.count,
        newestAt=millis(group.newest_at),
        oldestAt=millis(group.oldest_at),
        newestId=group.newest_id,
        needsAssume=group.error_class == EFFECT_UNKNOWN,
        note=_note(group.note),
    )


def _note(note: Note | None) -> ShownNote | None:
    if note is None:
        return None
    return ShownNote(text=note.text, by=note.noted_by, at=millis(note.noted_at))


def _change(changed: ChangeResult, *, dry_run: bool) -> ShownChange:
    return ShownChange(
        count=changed.count, skipped=changed.skipped, more=changed.more, dryRun=dry_run
    )
