"""Memory for operators: who is remembered, what, where it came from, and the state of the index."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from typing_extensions import TypedDict

from holdfast.api.body import Body, read_body
from holdfast.api.health import memory_health
from holdfast.api.names import Printable
from holdfast.api.paging import GREATEST_ID, keyed_response, next_page_header
from holdfast.api.response import OK, ApiError, JsonResponse, Ok, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.routes.memory import open_index, parts_or_refuse
from holdfast.api.security.caller import actor_of
from holdfast.api.security.scope import refuse_limited
from holdfast.api.state import ApiState, state_of
from holdfast.errors import HoldfastError
from holdfast.memory.index import KnowledgeIndex
from holdfast.memory.maintenance import Difference, index_progress, verify
from holdfast.memory.observation import Observation
from holdfast.message import DEFAULT_WORKSPACE, channel_of, sender_of, written_of
from holdfast.queue.audit import AuditEntry
from holdfast.queue.event import Event, payload_to_show
from holdfast.queue.store import Store
from holdfast.store.memory import open_observations, open_people, save_unless_changed
from holdfast.store.memory_overview import MemoryOverview, Person
from holdfast.store.overview import OverviewReads

routes = APIRouter(route_class=AuthorizedRoute, tags=["memory"])

NOT_FOUND = "observation not found"
SHOWN = 300
"""Characters of a source."""
SHOWN_DIFFERENCES = 100
VERIFY_SECONDS = 60.0

ObservationId = Annotated[str, Path(description="The id of the observation.")]
Workspace = Annotated[Printable, Query(description="The workspace of the observation.")]
Content = Annotated[str, StringConstraints(min_length=1, max_length=10_000)]


class PeopleQuery(BaseModel):
    """People in the order of their keys."""

    model_config = ConfigDict(frozen=True)

    q: Printable | None = Field(None, description="A part of an identity, in any case.")
    limit: int = Field(100, ge=1, le=1000, description="Maximum number of people.")
    after: Printable | None = Field(None, description="Only people after this one.")


class ObservationQuery(BaseModel):
    """Observations about one subject."""

    model_config = ConfigDict(frozen=True)

    subject: Printable = Field(description="workspace:TYPE:id, such as default:USER:api:id:ann.")
    limit: int = Field(
        100, ge=1, le=1000, description="Maximum number of rows; a page also ends at 4 MiB."
    )
    before_version: int | None = Field(
        None, ge=0, le=GREATEST_ID, description="Only versions less than this."
    )

    def within(self, request: Request) -> NewestBounds:
        """Return the bounds of the page, with the server's limit in bytes."""
        return {
            "limit": self.limit,
            "before_version": self.before_version,
            "most_bytes": state_of(request).limits.page_bytes,
        }


class NewestBounds(TypedDict):
    """The bounds of a page of observations, with a limit in bytes."""

    limit: int
    before_version: int | None
    most_bytes: int


class Correction(Body):
    """A corrected observation."""

    workspace: Printable = Field(DEFAULT_WORKSPACE, description="Its workspace.")
    content: Content = Field(description="What is true.")
    version: int = Field(description="The version that was read.")


class ShownPerson(TypedDict):
    """A person, with all linked identities."""

    person: str
    identities: list[str]
    observations: int
    linked: bool


class Source(TypedDict):
    """The message from which an observation was learned; nulls if it is not known any more."""

    messageId: str
    eventId: int | None
    sender: str | None
    channel: str | None
    at: int | None
    message: str | None


class ShownObservation(TypedDict):
    """One line of memory. `pending`: changes of its subject are on their way to the index."""

    id: str
    workspace: str
    subject: str
    content: str
    type: str
    confidence: float
    observer: str
    createdAt: int | None
    updatedAt: int | None
    version: int
    pending: bool
    sources: list[Source]


class IndexState(TypedDict):
    """The index; `outdated` documents were made by another model."""

    model: str
    documents: int
    outdated: int


class MemoryStatus(TypedDict):
    """Sizes of memory, and changes on their way to the index."""

    observations: int
    people: int
    pending: int
    oldestAt: int | None
    dead: int
    index: IndexState | None


class ShownDifference(TypedDict):
    """A document that is missing, unknown or has other content."""

    subject: str
    id: str
    what: str


class Verification(TypedDict):
    """Differences between the observations and the index, the first hundred of them."""

    subjects: int
    differences: list[ShownDifference]
    count: int
    milliseconds: int


PERSON: dict[str, Any] = {
    "person": "default:USER:api:id:ada",
    "identities": ["default:USER:api:id:ada"],
    "observations": 3,
    "linked": False,
}
LINE: dict[str, Any] = {
    "id": "obs_5f0c1f0e9d3b7a42",
    "workspace": "default",
    "subject": "default:USER:api:id:ada",
    "content": "drinks green tea",
    "type": "EXPLICIT",
    "confidence": 0.9,
    "observer": "coder",
    "createdAt": 1767225600000,
    "updatedAt": 1767225600000,
    "version": 5,
    "pending": False,
    "sources": [
        {
            "messageId": "api_m8boovyb",
            "eventId": 7,
            "sender": "Ada",
            "channel": "api",
            "at": 1767225600000,
            "message": "I only drink green tea",
        }
    ],
}
STATUS: dict[str, Any] = {
    "observations": 10,
    "people": 2,
    "pending": 0,
    "oldestAt": None,
    "dead": 0,
    "index": {"model": "wordllama", "documents": 10, "outdated": 0},
}


@routes.get(
    "/api/memory/people",
    summary="List people who are remembered",
    **route_options("read", list[ShownPerson], [PERSON], 400),
)
async def get_people(request: Request, query: Annotated[PeopleQuery, Query()]) -> JsonResponse:
    """List people with observations, by key. Linked identities are one person. If there may be
    more, a header `Link` names the next page."""
    await refuse_limited(request)
    after = None if query.after is None else parts_or_refuse(query.after)
    people, last = await MemoryOverview(state_of(request).store).people(
        part=query.q, after=None if after is None else (after[0], after[2]), limit=query.limit
    )
    headers = {} if last is None else next_page_header(request, "after", last)
    return JsonResponse([_person(one) for one in people], headers=headers)


@routes.get(
    "/api/observations",
    summary="List what is remembered of somebody",
    **route_options("read", list[ShownObservation], [LINE], 400),
)
async def get_observations(
    request: Request, query: Annotated[ObservationQuery, Query()]
) -> JsonResponse:
    """List observations about a subject and its linked identities, newest first, each with the
    messages from which it was learned, as far as they are kept. If there may be more, a header
    `Link` names the next page."""
    await refuse_limited(request)
    parts_or_refuse(query.subject)
    store = state_of(request).store
    keys = await open_people(store).identities(query.subject)
    found = await MemoryOverview(store).newest(keys, **query.within(request))
    pending = {key: await open_observations(store).has_pending(key) for key in keys}
    sources = await MemoryOverview(store).sources(
        name for one in found for name in one.source_message_ids
    )
    name, key = "before_version", attrgetter("version")
    return keyed_response(request, found, lambda one: _line(one, sources, pending), key, name=name)


@routes.post(
    "/api/observations/{id}",
    summary="Correct an observation",
    **route_options(
        "admin",
        ShownObservation,
        LINE,
        404,
        409,
        body=Correction,
        given={"content": "drinks black tea", "version": 5},
    ),
)
async def correct(request: Request, id: ObservationId) -> JsonResponse:
    """Replace the content of an observation; its sources stay. 409 if it was changed since it was
    read: `version` must be the current one."""
    await refuse_limited(request)
    given, store = await read_body(request, Correction), state_of(request).store
    known = await _find(store, given.workspace, id)
    if not given.content.strip():
        raise ApiError(400, "content: must not be blank")
    corrected = replace(known, content=given.content.strip(), version=given.version)
    if not await save_unless_changed(store, corrected):
        raise ApiError(409, "somebody changed it meanwhile; read it again")
    await _audit(request, "corrected", known)
    saved = await _find(store, given.workspace, id)
    sources = await MemoryOverview(store).sources(saved.source_message_ids)
    return JsonResponse(_line(saved, sources, {saved.subject_key: True}))


@routes.delete(
    "/api/observations/{id}",
    summary="Delete an observation",
    **route_options("admin", Ok, {"ok": True}, 400, 404),
)
async def erase(
    request: Request, id: ObservationId, workspace: Workspace = DEFAULT_WORKSPACE
) -> JsonResponse:
    """Delete one observation for good; the relay removes it from the index."""
    await refuse_limited(request)
    store = state_of(request).store
    known = await _find(store, workspace, id)
    await open_observations(store).delete(workspace, id)
    await _audit(request, "erased", known)
    return JsonResponse(OK)


@routes.get(
    "/api/memory/status",
    summary="Get the state of memory",
    **route_options("read", MemoryStatus, STATUS),
)
async def get_memory_status(request: Request) -> JsonResponse:
    """Count observations, people, and changes that are not in the index yet."""
    await refuse_limited(request)
    state = state_of(request)
    store, counts = state.store, await state.counts.get()
    health = memory_health(counts, await OverviewReads(store).dead(), await store.now())
    status = MemoryStatus(
        observations=await open_observations(store).count(),
        people=await MemoryOverview(store).count_people(),
        pending=health.pending,
        oldestAt=None if health.oldest_at is None else millis(health.oldest_at),
        dead=health.dead,
        index=await _index_state(state),
    )
    return JsonResponse(status)


async def _index_state(state: ApiState) -> IndexState | None:
    knowledge = open_index(state)
    if not isinstance(knowledge, KnowledgeIndex):
        return None
    index = await index_progress(state.store, knowledge)
    if index is None:
        return None
    return IndexState(model=index.model, documents=index.documents, outdated=index.other_model)


@routes.post(
    "/api/memory/verify",
    summary="Compare the index with the observations",
    **route_options(
        "admin",
        Verification,
        {"subjects": 2, "differences": [], "count": 0, "milliseconds": 12},
    ),
)
async def verify_memory(request: Request) -> JsonResponse:
    """Read all observations and documents, and list differences. Changes that are on their way show
    as differences. 503 if it takes longer than a minute: use `holdfast memory verify` then."""
    await refuse_limited(request)
    state, begun_at = state_of(request), time.perf_counter()
    found = await _differences(state)
    shown = [
        ShownDifference(subject=one.subject_key, id=one.id, what=one.what)
        for one in found[:SHOWN_DIFFERENCES]
    ]
    verification = Verification(
        subjects=len(await open_observations(state.store).find_subjects()),
        differences=shown,
        count=len(found),
        milliseconds=round((time.perf_counter() - begun_at) * 1000),
    )
    return JsonResponse(verification)


async def _differences(state: ApiState) -> list[Difference]:
    try:
        async with asyncio.timeout(VERIFY_SECONDS):
            return await verify(open_observations(state.store), open_index(state))
    except TimeoutError:
        raise ApiError(503, "it takes too long here; run `holdfast memory verify`") from None
    except HoldfastError as error:
        # The index is unavailable, or the packages of memory are not installed.
        raise ApiError(503, str(error)) from None


async def _find(store: Store, workspace: str, id_: str) -> Observation:
    found = await open_observations(store).find_by_id(workspace, id_) if id_.isprintable() else None
    if found is None:
        raise ApiError(404, NOT_FOUND)
    return found


async def _audit(request: Request, action: Any, observation: Observation) -> None:
    store = state_of(request).store
    subject = await store.pseudonym(observation.subject_key)
    await store.audit(AuditEntry(actor=actor_of(request), action=action, subject=subject))


def _person(person: Person) -> ShownPerson:
    return ShownPerson(
        person=person.key,
        identities=list(person.identities),
        observations=person.observations,
        linked=len(person.identities) > 1,
    )


def _line(
    one: Observation, sources: Mapping[str, Event], pending: Mapping[str, bool]
) -> ShownObservation:
    return ShownObservation(
        id=one.id,
        workspace=one.workspace_id,
        subject=one.subject_key,
        content=one.content,
        type=one.type,
        confidence=round(one.confidence, 3),
        observer=one.observer,
        createdAt=None if one.created_at is None else millis(one.created_at),
        updatedAt=None if one.updated_at is None else millis(one.updated_at),
        version=one.version,
        pending=pending.get(one.subject_key, False),
        sources=[_source(name, sources.get(name)) for name in one.source_message_ids],
    )


def _source(message_id: str, event: Event | None) -> Source:
    payload = None if event is None else payload_to_show(event)
    return Source(
        messageId=message_id,
        eventId=None if event is None else event.id,
        sender=None if payload is None else sender_of(payload),
        channel=None if payload is None else channel_of(payload),
        at=None if event is None else millis(event.created_at),
        message=None if payload is None else written_of(payload)[:SHOWN],
    )
