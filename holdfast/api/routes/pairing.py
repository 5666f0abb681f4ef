"""Pairing of strangers on channels: listed, approved and revoked by admins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.api.body import Body, read_body
from holdfast.api.names import Channel, Printable
from holdfast.api.paging import KeyedPage, keyed_response
from holdfast.api.response import OK, ApiError, JsonResponse, Ok
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import actor_of
from holdfast.api.state import state_of
from holdfast.store.pairing import (
    describe_person,
    describe_request,
    open_pairings,
    page_of_approved,
    parse_code,
)

routes = APIRouter(route_class=AuthorizedRoute, tags=["access"])


class OpenRequest(TypedDict):
    """A stranger who waits for approval."""

    code: str
    channel: str
    sender: str
    senderId: str
    requestedAt: int
    expiresAt: int


class ApprovedPerson(TypedDict):
    """A person whose messages are answered."""

    channel: str
    sender: str
    senderId: str
    approvedAt: int
    approvedBy: str | None


class ApprovalResult(ApprovedPerson):
    """The person who was approved."""

    ok: bool


class Approval(Body):
    """The request to approve."""

    code: Printable = Field(description="The code that the person was told.")


class Revocation(Body):
    """The person to remove."""

    channel: Channel = Field(description="The channel of the person.")
    sender_id: Printable = Field(description="Their id on the channel.")


SENDER: dict[str, Any] = {"channel": "telegram", "sender": "Ada", "senderId": "4711"}
REQUEST = {"code": "K7MPQ2XZ", **SENDER, "requestedAt": 1767225600000, "expiresAt": 1767229200000}
PERSON = {**SENDER, "approvedAt": 1767225660000, "approvedBy": "api:admin"}


@routes.get(
    "/api/pairing",
    summary="List strangers who wait for approval",
    **route_options("admin", list[OpenRequest], [REQUEST]),
)
async def get_requests(request: Request) -> JsonResponse:
    """List open requests, oldest first. They expire after an hour."""
    found = await open_pairings(state_of(request).store).requests()
    return JsonResponse([describe_request(one) for one in found])


@routes.get(
    "/api/pairing/approved",
    summary="List approved people",
    **route_options("admin", list[ApprovedPerson], [PERSON], 400),
)
async def get_approved(request: Request, page: Annotated[KeyedPage, Query()]) -> JsonResponse:
    """List the people who were approved, by channel and id. If there may be more, a header `Link`
    names the next page."""
    channel, _, id_ = (page.after or "").partition(":")
    store = state_of(request).store
    found = await page_of_approved(store, (channel, id_), **page.within(request))
    return keyed_response(
        request, found, describe_person, lambda one: f"{one.channel}:{one.sender_id}"
    )


@routes.post(
    "/api/pairing/approve",
    summary="Approve a stranger",
    **route_options(
        "admin",
        ApprovalResult,
        {"ok": True, **PERSON},
        404,
        body=Approval,
        given={"code": "K7MPQ2XZ"},
    ),
)
async def approve(request: Request) -> JsonResponse:
    """Admit the person with this code. Their messages from now on are answered."""
    code = parse_code((await read_body(request, Approval)).code)
    person = await open_pairings(state_of(request).store).approve(code, actor=actor_of(request))
    if person is None:
        raise ApiError(404, "pairing code not found")
    return JsonResponse({"ok": True, **describe_person(person)})


@routes.post(
    "/api/pairing/revoke",
    summary="Revoke a person",
    **route_options(
        "admin",
        Ok,
        {"ok": True},
        404,
        body=Revocation,
        given={"channel": "telegram", "senderId": "4711"},
    ),
)
async def revoke(request: Request) -> JsonResponse:
    """Remove a person or a request. The next message of the person is a stranger's again."""
    which = await read_body(request, Revocation)
    pairings = open_pairings(state_of(request).store)
    if not await pairings.revoke(which.channel, which.sender_id, actor=actor_of(request)):
        raise ApiError(404, "person not paired")
    return JsonResponse(OK)
