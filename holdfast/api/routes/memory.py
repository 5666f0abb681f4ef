"""Memory of agents: searched, listed and forgotten."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from holdfast.api.names import Printable, Text
from holdfast.api.paging import next_page_header
from holdfast.api.response import ApiError, JsonResponse
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import actor_of
from holdfast.api.security.scope import refuse_limited
from holdfast.api.state import ApiState, state_of
from holdfast.errors import HoldfastError
from holdfast.memory.knowledge import DEFAULT_AGENT_NAME, KnowledgeScope, KnowledgeStore
from holdfast.memory.observation import Subject, parts_of
from holdfast.queue.pages import Measure
from holdfast.store.forget import find_identities, forget
from holdfast.store.memory import open_knowledge, open_observations, open_people

routes = APIRouter(route_class=AuthorizedRoute, tags=["memory"])

All = Annotated[bool, Query(description="Forget all identities, if several match the subject.")]
Vacuum = Annotated[
    bool, Query(description="Vacuum PostgreSQL's tables at once, so that the bytes are freed.")
]
SubjectKey = Annotated[str, Path(description="workspace:TYPE:id, such as default:USER:api:id:ann.")]


class MemorySearch(BaseModel):
    """A search, and the subject to search."""

    model_config = ConfigDict(frozen=True)

    subject: Printable = Field(description="workspace:TYPE:id, such as default:USER:api:id:ann.")
    q: Text = Field(max_length=4000, description="The text to search for.")
    limit: int = Field(
        5,
        ge=1,
        le=1000,
        description="Maximum number of observations; an answer also ends at 4 MiB.",
    )


class SubjectPage(BaseModel):
    """Subjects in the order of their keys."""

    model_config = ConfigDict(frozen=True)

    limit: int = Field(
        1000, ge=1, le=1000, description="Maximum number of subjects; a page also ends at 4 MiB."
    )
    after: Text | None = Field(None, max_length=4000, description="Only subjects after this one.")


class Match(TypedDict):
    """An observation that matches; the score is between 0 and 1."""

    id: str
    content: str
    score: float


class ListedSubject(TypedDict):
    """A subject of memory: a person or a thing."""

    subject: str
    workspace: str
    type: str
    id: str
    observations: int


MATCH: dict[str, Any] = {
    "id": "obs_5f0c1f0e9d3b7a42",
    "content": "Ada drinks green tea",
    "score": 0.71,
}
SUBJECT: dict[str, Any] = {
    "subject": "default:USER:api:id:ada",
    "workspace": "default",
    "type": "USER",
    "id": "api:id:ada",
    "observations": 3,
}
FORGOTTEN = {
    "events": 1,
    "history": 12,
    "agent_messages": 24,
    "chat_messages": 0,
    "activity": 9,
    "settings": 0,
    "observations": 3,
    "index": 3,
    "files": 2,
}


@routes.get(
    "/api/memory/search",
    summary="Search memory",
    **route_options("read", list[Match], [MATCH], 400),
)
async def search_memory(request: Request, search: Annotated[MemorySearch, Query()]) -> JsonResponse:
    """Search by words and by meaning, best match first. The list ends with the observation that
    reaches 4 MiB."""
    await refuse_limited(request)
    state = state_of(request)
    scope = KnowledgeScope(DEFAULT_AGENT_NAME, ":".join(parts_or_refuse(search.subject)))
    try:
        hits = await open_index(state).search(scope, search.q, search.limit)
    except HoldfastError as error:
        # The index is unavailable, or the packages of memory are not installed.
        raise ApiError(503, str(error)) from None
    rows = ((hit.id, hit.content, hit.score) for hit in hits)
    page = Measure(search.limit, state.limits.page_bytes).page(rows)
    return JsonResponse(
        [Match(id=id_, content=content, score=score) for id_, content, score in page]
    )


@routes.get(
    "/api/memory/subjects",
    summary="List subjects of memory",
    **route_options("read", list[ListedSubject], [SUBJECT], 400),
)
async def get_subjects(request: Request, page: Annotated[SubjectPage, Query()]) -> JsonResponse:
    """List subjects by workspace, type and id. If there may be more, a header `Link` names the next
    page."""
    await refuse_limited(request)
    state = state_of(request)
    after = None if page.after is None else _read_after(page.after)
    subjects = await open_observations(state.store).find_subjects(
        after=after, limit=page.limit, most_bytes=state.limits.page_bytes
    )
    has_more = subjects and subjects.has_more
    headers = next_page_header(request, "after", subjects[-1].key) if has_more else {}
    return JsonResponse([_subject(one) for one in subjects], headers=headers)


def _subject(one: Subject) -> ListedSubject:
    return ListedSubject(
        subject=one.key,
        workspace=one.workspace_id,
        type=one.type,
        id=one.id,
        observations=one.observations,
    )


@routes.delete(
    "/api/memory/{subject:path}",
    summary="Forget a subject",
    **route_options("admin", dict[str, int], FORGOTTEN, 400, 404, 409),
)
async def forget_subject(
    request: Request,
    subject: SubjectKey,
    all: All = False,  # noqa: A002
    vacuum: Vacuum = False,
) -> JsonResponse:
    """Remove every trace: observations, index, the messages of a person and their answers.

    A person without a channel, such as default:USER:ann, means everybody with that id or name. If
    that is more than one identity, the answer is 409 with the list `identities` unless `all` is
    true. Returns the number of rows removed, by kind; `unattributed_…` counts rows of earlier
    releases that name no person. On SQLite the bytes are gone from the files, too; on
    PostgreSQL a vacuum frees them."""
    state = state_of(request)
    parts = parts_or_refuse(subject)
    if not all:
        await _refuse_several(state, subject, parts)
    removed = await forget(
        open_observations(state.store),
        open_index(state),
        *parts,
        actor=actor_of(request),
        files=state.settings.files,
        vacuum=vacuum,
    )
    return JsonResponse(removed)


async def _refuse_several(state: ApiState, subject: str, parts: tuple[str, str, str]) -> None:
    """Refuse a subject without a channel that matches more than one identity."""
    found = await find_identities(open_people(state.store), *parts)
    matching = [identity for identity in found.matching if identity != ":".join(parts)]
    if len(matching) > 1:
        raise ApiError(
            409,
            f"{subject} matches {len(matching)} identities; name one, or add `?all=true`",
            further={"identities": matching},
        )


def _read_after(key: str) -> tuple[str, str, str]:
    """Return the parts of a key to page after; the subject itself need not exist any more."""
    parts = key.split(":", 2)
    if len(parts) != 3 or "\0" in key:
        raise ApiError(
            400, "after must be the subject that a page ended with, such as default:USER:api:id:ann"
        )
    return parts[0], parts[1], parts[2]


def parts_or_refuse(subject: str) -> tuple[str, str, str]:
    """Return workspace, type and id of a subject; refuse anything else."""
    try:
        return parts_of(subject)
    except HoldfastError as error:
        raise ApiError(400, str(error)) from None


def open_index(state: ApiState) -> KnowledgeStore:
    """Return the index, opened once, so that the embedder stays loaded."""
    if state.knowledge is None:
        state.knowledge = open_knowledge(state.store, state.harness.embedder)
    return state.knowledge
