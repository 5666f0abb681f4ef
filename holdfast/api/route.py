"""A route: a role that must be had before anything is read, and what the OpenAPI document says of it."""

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
NO_TOKEN = "no valid token or session; `holdfast token` prints a token, `holdfast login` a link for a browser"  # noqa: S105
EVERYWHERE = {
    401: "No token, or a wrong one.",
    403: "The token's role is too small, or the page is of another origin.",
    413: "The body is over 1 MiB.",
    421: "The request names a foreign host.",
    429: "Too many requests.",
    503: "The database does not answer.",
}
SOMETIMES = {
    400: "The request is not as it should be.",
    404: "There is no such thing.",
    408: "The body did not arrive.",
    409: "It is in use, or was there before.",
}


class AuthorizedRoute(APIRoute):
    """A route without a role cannot be made."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        # What asks for the request alone needs nothing found for it, which takes a tenth of a short answer's time.
        alone = list(inspect.signature(self.endpoint).parameters) == ["request"]
        handle = self.endpoint if alone else super().get_route_handler()
        needed: Role = (self.openapi_extra or {})[ROLE]

        async def guarded(request: Request) -> Response:
            caller = await find_caller(request)
            if caller is None:
                raise ApiError(401, NO_TOKEN, headers={"www-authenticate": "Bearer"})
            if not allows(caller.role, needed):
                raise ApiError(
                    403, f"this needs the role {needed}, and {caller.name!r} has {caller.role}"
                )
            return await handle(request)

        return guarded


def route_options(
    role: Role,
    answer: Any,
    example: Any,
    *refusals: int,
    body: type[Body] | None = None,
    given: Any = None,
    content: str = "application/json",
) -> dict[str, Any]:
    """Arguments of a route: who may ask, what comes back, and what is given with it."""
    texts = EVERYWHERE | {
        status: SOMETIMES[status] for status in (*refusals, *((400, 408) if body else ()))
    }
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": texts[status], "model": Error} for status in sorted(texts)
    }
    responses[200] = {"content": {content: {"example": example}}}
    extra: dict[str, Any] = {ROLE: role}
    if body is not None:
        schema = body.model_json_schema()
        extra["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema, "example": given}},
        }
    return {"response_model": answer, "responses": responses, "openapi_extra": extra}
