"""Tokens of people and programs: listed, created and revoked by admins."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import AfterValidator, Field, PlainValidator
from typing_extensions import TypedDict

from holdfast.api.body import Body, read_body
from holdfast.api.names import Channel, Name, require_text
from holdfast.api.paging import KeyedPage, keyed_response
from holdfast.api.response import OK, ApiError, JsonResponse, Ok, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.security.caller import actor_of
from holdfast.api.security.credentials import (
    Grant,
    InvalidGrant,
    NameTaken,
    create_token,
    revoke_token,
)
from holdfast.api.security.guard import Access
from holdfast.api.state import state_of
from holdfast.settings import duration
from holdfast.store.credentials import Credential, page_of_tokens

routes = APIRouter(route_class=AuthorizedRoute, tags=["access"])

Bound = Annotated[Name, AfterValidator(require_text)]


class NewToken(Body):
    """Rights for a person or a program."""

    name: str = Field(max_length=100, description="Unique among tokens.")
    role: Literal["read", "send", "admin"] = Field(description="What it allows.")
    channels: list[Channel] | None = Field(
        None, max_length=100, description="The only channels it may use or see."
    )
    agents: list[Bound] | None = Field(
        None, max_length=100, description="The only agents it may use or see."
    )
    sender: Bound | None = Field(None, description="The only name it may speak under.")
    expires: (
        Annotated[timedelta, PlainValidator(duration, json_schema_input_type=str | float)] | None
    ) = Field(
        None,
        description='A duration such as "30d", or a number of seconds. Default: never.',
    )


class Token(TypedDict):
    """A token without its secret; null means not bound, or never."""

    id: str
    name: str
    role: str
    channels: list[str] | None
    agents: list[str] | None
    sender: str | None
    createdAt: int
    expiresAt: int | None
    lastUsedAt: int | None
    expired: bool


class CreatedToken(Token):
    """A new token with its secret, which is shown this once."""

    token: str


EXAMPLE: dict[str, Any] = {
    "id": "token_5f0c1f0e9d3b7a42",
    "name": "ci",
    "role": "send",
    "channels": ["api"],
    "agents": ["coder"],
    "sender": "CI",
    "createdAt": 1767225600000,
    "expiresAt": 1769817600000,
    "lastUsedAt": None,
    "expired": False,
}


@routes.get(
    "/api/tokens",
    summary="List the tokens",
    **route_options("admin", list[Token], [EXAMPLE], 400),
)
async def get_tokens(request: Request, page: Annotated[KeyedPage, Query()]) -> JsonResponse:
    """List tokens by name, without secrets and without the bootstrap tokens. If there may be more,
    a header `Link` names the next page."""
    store = state_of(request).store
    now = millis(await store.now())
    found = await page_of_tokens(store, page.after, **page.within(request))
    return keyed_response(request, found, lambda one: _token(one, now), lambda one: one.name)


@routes.post(
    "/api/tokens",
    summary="Create a token",
    **route_options(
        "admin",
        CreatedToken,
        EXAMPLE | {"token": "hft_…"},
        409,
        body=NewToken,
        given={
            "name": "ci",
            "role": "send",
            "channels": ["api"],
            "agents": ["coder"],
            "sender": "CI",
            "expires": "30d",
        },
    ),
)
async def post_token(request: Request) -> JsonResponse:
    """Create a token. Its secret is in this answer and nowhere else."""
    store = state_of(request).store
    new = await read_body(request, NewToken)
    try:
        secret, token = await create_token(store, _grant(new), new.expires, actor_of(request))
    except InvalidGrant as error:
        raise ApiError(400, str(error)) from None
    except NameTaken as error:
        raise ApiError(409, str(error)) from None
    return JsonResponse(CreatedToken(**_token(token, millis(token.created_at)), token=secret))


@routes.delete(
    "/api/tokens/{name}", summary="Revoke a token", **route_options("admin", Ok, {"ok": True}, 404)
)
async def delete_token(
    request: Request, name: Annotated[str, Path(description="A token's name.")]
) -> JsonResponse:
    """Revoke a token and its sessions at once; other processes follow within a second."""
    if not name.isprintable() or not await revoke_token(
        state_of(request).store, name, actor_of(request)
    ):
        raise ApiError(404, "token not found")
    access: Access = request.app.state.access
    access.callers.forget()
    return JsonResponse(OK)


def _grant(new: NewToken) -> Grant:
    return Grant(
        name=new.name,
        role=new.role,
        channels=None if new.channels is None else tuple(new.channels),
        agents=None if new.agents is None else tuple(new.agents),
        sender=new.sender,
    )


def _token(token: Credential, now: int) -> Token:
    expires_at = None if token.expires_at is None else millis(token.expires_at)
    return Token(
        id=token.id,
        name=token.name,
        role=token.role,
        channels=None if token.channels is None else list(token.channels),
        agents=None if token.agents is None else list(token.agents),
        sender=token.sender,
        createdAt=millis(token.created_at),
        expiresAt=expires_at,
        lastUsedAt=None if token.used_at is None else millis(token.used_at),
        expired=expires_at is not None and expires_at <= now,
    )
