"""The audit log."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.api.names import Printable
from holdfast.api.paging import Page, list_response
from holdfast.api.response import EPOCH, MILLISECOND, JsonResponse, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.state import state_of
from holdfast.queue.audit import Action, AuditEntry, AuditFilter

routes = APIRouter(route_class=AuthorizedRoute, tags=["audit"])

LATEST = timedelta(days=365 * 230) // MILLISECOND


class AuditPage(Page):
    """Entries of the audit log."""

    action: Action | None = Field(None, description="Only acts of this kind.")
    actor: Printable | None = Field(
        None, description="Only acts of this actor, such as `cli:root`."
    )
    subject: Printable | None = Field(None, description="Only acts on this, such as `event:7`.")
    since: int | None = Field(
        None, ge=0, le=LATEST, description="Only from this time on, in milliseconds since 1970."
    )


class Act(TypedDict):
    """One act. People appear under a pseudonym, so that the log survives forgetting."""

    id: int
    at: int
    actor: str
    action: str
    subject: str
    details: dict[str, Any]


EXAMPLE: dict[str, Any] = {
    "id": 3,
    "at": 1767225600000,
    "actor": "api:admin",
    "action": "retried",
    "subject": "event:7",
    "details": {},
}


@routes.get(
    "/api/audit", summary="List the audit log", **route_options("admin", list[Act], [EXAMPLE], 400)
)
async def get_audit(request: Request, page: Annotated[AuditPage, Query()]) -> JsonResponse:
    """List acts, newest first. The log is append-only; `keep_audit` limits its age."""
    since = None if page.since is None else EPOCH + page.since * MILLISECOND
    which = AuditFilter(action=page.action, actor=page.actor, subject=page.subject, since=since)
    found = await state_of(request).store.audit_log(which, **page.within(request))
    return list_response(request, found, _act)


def _act(entry: AuditEntry) -> Act:
    assert entry.id is not None
    assert entry.at is not None
    return Act(
        id=entry.id,
        at=millis(entry.at),
        actor=entry.actor,
        action=entry.action,
        subject=entry.subject,
        details=entry.details,
    )
