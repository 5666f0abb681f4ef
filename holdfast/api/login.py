"""The login link: a token in the address becomes a cookie, and the address goes out of sight."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from holdfast.api.answer import Error, Refused
from holdfast.api.guard import Access, cookie_of

routes = APIRouter(tags=["access"])

Token = Annotated[str, Query(description="What `holdfast token` prints.")]


@routes.get(
    "/login",
    summary="Log a browser in",
    status_code=303,
    response_class=Response,
    responses={
        400: {"description": "The request is not as it should be.", "model": Error},
        421: {"description": "The request names a foreign host.", "model": Error},
        429: {"description": "Too many wrong tokens.", "model": Error},
        401: {"description": "A wrong token.", "model": Error},
        303: {"description": "To the page."},
    },
)
async def login(request: Request, token: Token = "") -> Response:
    """Sets a cookie that no script reads and no other site sends, and leads to the page."""
    access: Access = request.app.state.access
    answer = RedirectResponse("/", 303)
    if access.tokens is not None:
        if access.role_of(token, request.client.host if request.client else "") is None:
            raise Refused(401, "this link is not valid (any more): `holdfast token` prints the token of today")
        answer.headers["set-cookie"] = cookie_of(request.scope, token)
    return answer
