"""Sessions of browsers: listed and ended by admins."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from typing_extensions import TypedDict

from holdfast.api.paging import KeyedPage, keyed_response
from holdfast.api.response import OK, ApiError, JsonResponse, Ok, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import actor_of, caller_of
from holdfast.api.security.guard import Access
from holdfast.api.state import state_of
from holdfast.queue.audit import AuditEntry
from holdfast.store.credentials import Credential, open_credentials, page_of_sessions

routes = APIRouter(route_class=AuthorizedRoute, tags=["access"])

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
POSITION = re.compile(r"([0-9]{1,17})\.(\w{1,100})", re.ASCII)


class ListedSession(TypedDict):
    """A session. `current` marks that of the caller."""

    id: str
    name: str
    role: str
    createdAt: int
    expiresAt: int | None
    lastUsedAt: int | None
    current: bool


EXAMPLE: dict[str, Any] = {
    "id": "session_5f0c1f0e9d3b7a42",
    "name": "ada",
    "role": "admin",
    "createdAt": 1767225600000,
    "expiresAt": 1769817600000,
    "lastUsedAt": 1767225660000,
    "current": True,
}


@routes.get(
    "/api/sessions",
    summary="List the sessions of browsers",
    **route_options("admin", list[ListedSession], [EXAMPLE], 400),
)
async def get_sessions(request: Request, page: Annotated[KeyedPage, Query()]) -> JsonResponse:
    """List sessions that have not expired, the latest login first. The last use is written at most
    once a minute. If there may be more, a header `Link` names the next page."""
    own = caller_of(request).credential
    after = None if page.after is None else _read_position(page.after)
    found = await page_of_sessions(state_of(request).store, after, **page.within(request))
    return keyed_response(
        request, found, lambda one: _session(one, None if own is None else own.id), _position
    )


def _position(session: Credential) -> str:
    """Return the position of a session in the list: its time in microseconds, and its id."""
    return f"{(session.created_at - EPOCH) // MICROSECOND}.{session.id}"


def _read_position(text: str) -> tuple[datetime, str]:
    found = POSITION.fullmatch(text)
    if found is None:
        raise ApiError(400, "after: take it from the header `Link` of the page before")
    return EPOCH + int(found[1]) * MICROSECOND, found[2]


@routes.delete(
    "/api/sessions/{id}",
    summary="End a session",
    **route_options("admin", Ok, {"ok": True}, 404),
)
async def delete_session(
    request: Request, id: Annotated[str, Path(description="The id of a session.")]
) -> JsonResponse:
    """Log a browser out at once; in other processes within a second."""
    store = state_of(request).store
    credentials = open_credentials(store)
    if id not in {one.id for one in await credentials.sessions()}:
        raise ApiError(404, "session not found")
    await credentials.end(id)
    access: Access = request.app.state.access
    access.callers.forget()
    await store.audit(AuditEntry(actor=actor_of(request), action="logged_out", subject=id))
    return JsonResponse(OK)


def _session(session: Credential, own: str | None) -> ListedSession:
    return ListedSession(
        id=session.id,
        name=session.name,
        role=session.role,
        createdAt=millis(session.created_at),
        expiresAt=None if session.expires_at is None else millis(session.expires_at),
        lastUsedAt=None if session.used_at is None else millis(session.used_at),
        current=session.id == own,
    )
