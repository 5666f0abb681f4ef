"""Login with an OpenID Connect provider: the redirect to it, and the callback with a code."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from holdfast.api.response import ApiError
from holdfast.api.routes.login import REFUSALS, access_of, is_foreign, open_session
from holdfast.api.routes.login_page import refusal, wants_html
from holdfast.api.security.credentials import Grant
from holdfast.api.security.guard import client_of, cookie_in, cookie_name
from holdfast.api.security.oidc import Attempt, LoginRefused, Person, Provider, ProviderError
from holdfast.api.state import state_of

open_routes = APIRouter(tags=["access"], include_in_schema=False)

ATTEMPT_LIFE = 600
"""Seconds that a person may take to log in at the provider."""
START_AGAIN = (
    "this login was not begun in this browser, or too long ago; open /login to begin again"
)


@open_routes.get("/login/oidc", status_code=303, response_class=Response, responses=REFUSALS)
async def begin(request: Request) -> Response:
    """Send the browser to the provider."""
    provider = _provider(request)
    if is_foreign(request):
        return RedirectResponse("/login", 303)
    attempt = Attempt.new()
    try:
        answer = RedirectResponse(await provider.address(attempt, _redirect_uri(request)), 303)
    except ProviderError as error:
        return _refuse(request, str(error), 502)
    answer.headers["set-cookie"] = _cookie(request.scope, str(attempt), ATTEMPT_LIFE)
    return answer


@open_routes.get(
    "/login/oidc/callback", status_code=303, response_class=Response, responses=REFUSALS
)
async def come_back(
    request: Request,
    code: Annotated[str, Query(max_length=4096)] = "",
    state: Annotated[str, Query(max_length=200)] = "",
    error: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Verify what the provider says and open a session for the person."""
    provider = _provider(request)
    attempt = Attempt.read(cookie_in(request, _cookie_name(request.scope)))
    if attempt is None or not hmac.compare_digest(attempt.state.encode(), state.encode()):
        access_of(request).count_wrong(client_of(request.scope))
        return _refuse(request, START_AGAIN, 400)
    if error or not code:
        return _refuse(request, f"the provider refused the login: {error or 'no code'}", 401)
    try:
        person = await provider.person(attempt, code, _redirect_uri(request))
    except LoginRefused as refused:
        return _refuse(request, str(refused), 403)
    except ProviderError as failed:
        return _refuse(request, str(failed), 502)
    answer = await open_session(request, _grant(person))
    answer.raw_headers.insert(0, (b"set-cookie", _cookie(request.scope, "", 0).encode()))
    return answer


def _grant(person: Person) -> Grant:
    """Return a person's rights. With role send they can use only their own name as sender."""
    sender = person.name if person.role == "send" else None
    return Grant(name=person.name, role=person.role, sender=sender, owner=person.owner)


def _provider(request: Request) -> Provider:
    provider: Provider | None = request.app.state.oidc
    if provider is None:
        raise ApiError(404, "Not found")
    return provider


def _redirect_uri(request: Request) -> str:
    address = (
        state_of(request).settings.api_url or f"{request.url.scheme}://{request.headers['host']}"
    )
    return f"{address}/login/oidc/callback"


def _cookie_name(scope: Scope) -> str:
    return f"{cookie_name(scope)}_login"


def _cookie(scope: Scope, value: str, seconds: int) -> str:
    """Return Set-Cookie for an attempt. With SameSite=Strict, browsers would not send the cookie
    when the provider redirects back."""
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return (
        f"{_cookie_name(scope)}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax{secure}"
    )


def _refuse(request: Request, text: str, status: int) -> Response:
    if wants_html(request):
        return refusal(text, status, has_provider=True)
    raise ApiError(status, text)
