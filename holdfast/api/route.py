"""Routes that require a role, and their OpenAPI texts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.body import Body
from holdfast.api.response import ApiError, Error
from holdfast.api.security.bootstrap_tokens import allows
from holdfast.api.security.guard import find_caller
from holdfast.store.credentials import Role

ROLE = "x-role"
UNAUTHENTICATED = (
    "no valid token or session; `holdfast token` prints a token,"
    " `holdfast login` a link for a browser"
)
EVERYWHERE = {
    401: "The token is missing or wrong.",
    403: "The role of the token is too small, or the page has another origin.",
    413: "The body is over 1 MiB.",
    421: "The Host header is unknown.",
    429: "Too many requests.",
    503: "The database is unavailable.",
}
SOMETIMES = {
    400: "The request is invalid.",
    404: "Not found.",
    408: "The body did not arrive in time.",
    409: "It is in use, or exists already.",
}


class AuthorizedRoute(APIRoute):
    """A route that first checks the role of its caller. Creating one without a role fails."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        # Handlers that take the request alone need no parameters: skip FastAPI's search for them,
        # which takes a tenth of the time of a short request.
        alone = list(inspect.signature(self.endpoint).parameters) == ["request"]
        handle = self.endpoint if alone else super().get_route_handler()
        needed: Role = (self.openapi_extra or {})[ROLE]

        async def call(request: Request) -> Response:
            caller = await find_caller(request)
            if caller is None:
                raise ApiError(401, UNAUTHENTICATED, headers={"www-authenticate": "Bearer"})
            if not allows(caller.role, needed):
                raise ApiError(
                    403, f"this needs the role {needed}; {caller.name!r} has the role {caller.role}"
                )
            return await handle(request)

        return call


def route_options(
    role: Role,
    answer: Any,
    example: Any,
    *refusals: int,
    body: type[Body] | None = None,
    given: Any = None,
    content: str = "application/json",
) -> dict[str, Any]:
    """Return the arguments of a route: its role, and the OpenAPI text of body and responses."""
    texts = EVERYWHERE | {
        status: SOMETIMES[status] for status in (*refusals, *((400, 408) if body else ()))
    }
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": texts[status], "model": Error} for status in sorted(texts)
    }
    responses[200] = {"content": {content: {"example": example}}}
    extra = {ROLE: role} | ({} if body is None else {"requestBody": _body_text(body, given)})
    return {"response_model": answer, "responses": responses, "openapi_extra": extra}


def _body_text(body: type[Body], example: Any) -> dict[str, Any]:
    schema = {"schema": body.model_json_schema(), "example": example}
    return {"required": not body.is_optional(), "content": {"application/json": schema}}
