"""What agents remember: looked for, listed, and forgotten."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from holdfast.api.actor import actor_of
from holdfast.api.answer import Answer, Refused
from holdfast.api.messages import Printable, Text
from holdfast.api.route import Guarded, described
from holdfast.api.scope import refuse_limited
from holdfast.api.served import Served, served_by
from holdfast.errors import HoldfastError
from holdfast.memory.knowledge import KnowledgeScope, KnowledgeStore
from holdfast.memory.observation import parts_of
from holdfast.store.memories import DEFAULT_AGENT_NAME, open_knowledge, open_observations
from holdfast.upkeep import forget

routes = APIRouter(route_class=Guarded, tags=["memory"])

Vacuum = Annotated[bool, Query(description="Vacuum PostgreSQL's tables at once, so that the bytes are freed.")]
SubjectKey = Annotated[str, Path(description="workspace:TYPE:id, such as default:USER:api:id:ann.")]


class Asked(BaseModel):
    """What is looked for, and about whom."""

    model_config = ConfigDict(frozen=True)

    subject: Printable = Field(description="workspace:TYPE:id, such as default:USER:api:id:ann.")
    q: Text = Field(max_length=4000, description="What to look for, in any words.")
    limit: int = Field(5, ge=1, le=1000, description="At most so many.")


class Found(TypedDict):
    """An observation that bears on what was asked for; the score is between 0 and 1."""

    id: str
    content: str
    score: float


class Remembered(TypedDict):
    """Somebody, or something, that is remembered."""

    subject: str
    workspace: str
    type: str
    id: str
    observations: int


FOUND: dict[str, Any] = {"id": "obs_5f0c1f0e9d3b7a42", "content": "Ada drinks green tea", "score": 0.71}
REMEMBERED: dict[str, Any] = {
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
    summary="Find what is known about a subject",
    **described("read", list[Found], [FOUND], 400),
)
async def search_memory(request: Request, asked: Annotated[Asked, Query()]) -> Answer:
    """By words and by meaning, best first."""
    await refuse_limited(request)
    scope = KnowledgeScope(DEFAULT_AGENT_NAME, ":".join(_parts(asked.subject)))
    try:
        hits = await _knowledge(served_by(request)).search(scope, asked.q, asked.limit)
    except HoldfastError as error:
        # The index is away, or the packages of memory are not installed.
        raise Refused(503, str(error)) from None
    return Answer([Found(id=hit.id, content=hit.content, score=hit.score) for hit in hits])


@routes.get("/api/memory/subjects", summary="Who is remembered", **described("read", list[Remembered], [REMEMBERED]))
async def get_subjects(request: Request) -> Answer:
    """By workspace, type and id."""
    await refuse_limited(request)
    found = await open_observations(served_by(request).store).find_subjects()
    return Answer(
        [
            Remembered(
                subject=one.key, workspace=one.workspace_id, type=one.type, id=one.id, observations=one.observations
            )
            for one in found
        ]
    )


@routes.delete(
    "/api/memory/{subject:path}",
    summary="Forget a subject",
    **described("admin", dict[str, int], FORGOTTEN, 400, 404),
)
async def forget_subject(request: Request, subject: SubjectKey, vacuum: Vacuum = False) -> Answer:
    """Remove every trace: observations, index, and the person's messages with all that came of them.

    Answers how many rows of each kind went; `unattributed_…` counts rows of earlier releases that name no person. On
    SQLite the bytes are gone from the files, too; on PostgreSQL a vacuum frees them."""
    served = served_by(request)
    removed = await forget(
        open_observations(served.store),
        _knowledge(served),
        *_parts(subject),
        actor=actor_of(request),
        files=served.settings.files,
        vacuum=vacuum,
    )
    return Answer(removed)


def _parts(subject: str) -> tuple[str, str, str]:
    try:
        return parts_of(subject)
    except HoldfastError as error:
        raise Refused(400, str(error)) from None


def _knowledge(served: Served) -> KnowledgeStore:
    """One for all requests: what it has loaded to compare meanings is kept."""
    if served.knowledge is None:
        served.knowledge = open_knowledge(served.store, served.harness.embedder)
    return served.knowledge
