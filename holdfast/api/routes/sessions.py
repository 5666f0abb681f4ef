"""Sessions of browsers: listed and ended by admins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from typing_extensions import TypedDict

from holdfast.api.response import OK, ApiError, JsonResponse, Ok, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import actor_of, caller_of
from holdfast.api.security.guard import Access
from holdfast.api.state import state_of
from holdfast.queue.audit import AuditEntry
from holdfast.store.credentials import Credential, open_credentials

routes = APIRouter(route_class=AuthorizedRoute, tags=["access"])


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
    **route_options("admin", list[ListedSession], [EXAMPLE]),
)
async def get_sessions(request: Request) -> JsonResponse:
    """List sessions that have not expired, the latest login first. The last use is written at most
    once a minute."""
    own = caller_of(request).credential
    found = await open_credentials(state_of(request).store).sessions()
    return JsonResponse([_session(one, None if own is None else own.id) for one in found])


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
