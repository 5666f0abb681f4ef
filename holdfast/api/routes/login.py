"""Login of a browser by a one-time link, and logout."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response
from typing_extensions import TypedDict

from holdfast.api.body import read
from holdfast.api.response import OK, ApiError, Error, JsonResponse, Ok, millis
from holdfast.api.route import AuthorizedRoute, route_options
from holdfast.api.routes.login_page import confirmation, refusal, wants_html
from holdfast.api.security.bootstrap_tokens import digest_of
from holdfast.api.security.caller import PREFIXES, Caller, actor_name, caller_of
from holdfast.api.security.credentials import Grant, issue
from holdfast.api.security.guard import Access, client_of, find_caller, is_loopback, session_cookie
from holdfast.api.state import state_of
from holdfast.queue.audit import AuditEntry
from holdfast.store.credentials import Credential, Credentials, open_credentials

open_routes = APIRouter(tags=["access"])
routes = APIRouter(route_class=AuthorizedRoute, tags=["access"])

INVALID = "invalid or used login link; run `holdfast login` for a new one"

REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request is invalid.", "model": Error},
    401: {"description": "An invalid or used login link.", "model": Error},
    421: {"description": "The Host header is unknown.", "model": Error},
    429: {"description": "Too many wrong codes.", "model": Error},
    503: {"description": "The database is unavailable.", "model": Error},
}


class Session(TypedDict):
    """The caller and its bounds; null means not bound."""

    name: str
    role: str
    isSession: bool
    channels: list[str] | None
    agents: list[str] | None
    sender: str | None
    expiresAt: int | None


@open_routes.get(
    "/login",
    summary="Log a browser in",
    status_code=303,
    response_class=Response,
    responses={
        **REFUSALS,
        200: {"description": "A page that asks for confirmation.", "content": {"text/html": {}}},
        303: {"description": "Redirect to the page."},
    },
)
async def login(
    request: Request,
    code: Annotated[
        str, Query(description="The code in the link that `holdfast login` prints.")
    ] = "",
) -> Response:
    """Open a session with a one-time code and redirect to the page. Ask for confirmation first if
    another site sent the browser here."""
    if access_of(request).tokens is None:
        return RedirectResponse("/", 303)
    found = await _credentials(request).find("code", digest_of(code)) if _is_code(code) else None
    if found is None:
        return _invalid(request)
    caller = await _session_of(request)
    if caller is not None and caller.is_same_person(found) and not is_foreign(request):
        await _credentials(request).take(digest_of(code))
        return RedirectResponse("/", 303)
    if caller is not None or is_foreign(request):
        return confirmation(code, found, caller)
    return await _log_in(request, code)


@open_routes.post(
    "/login",
    summary="Confirm a login",
    status_code=303,
    response_class=Response,
    responses={**REFUSALS, 303: {"description": "Redirect to the page."}},
    openapi_extra={
        "requestBody": {
            "content": {
                "application/x-www-form-urlencoded": {
                    "schema": {"type": "object"},
                    "example": {"code": f"{PREFIXES['code']}…"},
                }
            }
        },
    },
)
async def confirm_login(request: Request) -> Response:
    """Open a session with the code in the form of the confirmation page."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ApiError(403, "only our own page may confirm a login")
    form = parse_qs((await read(request)).decode(errors="replace"))
    return await _log_in(request, form.get("code", [""])[0])


@open_routes.post(
    "/logout", summary="End this session", response_model=Ok, responses={503: REFUSALS[503]}
)
async def logout(request: Request) -> Response:
    """Delete the session and its cookie. Without a session nothing happens."""
    ended = await _end_session(request)
    if ended is not None:
        entry = AuditEntry(actor=actor_name(ended), action="logged_out", subject=ended.id)
        await state_of(request).store.audit(entry)
    answer = JsonResponse(OK)
    answer.headers["set-cookie"] = session_cookie(request.scope, "", 0)
    return answer


@routes.get(
    "/api/session",
    summary="Get the current session or token",
    **route_options(
        "read",
        Session,
        {
            "name": "ada",
            "role": "admin",
            "isSession": True,
            "channels": None,
            "agents": None,
            "sender": None,
            "expiresAt": 1767830400000,
        },
    ),
)
async def get_session(request: Request) -> JsonResponse:
    """Name, role and bounds of the token or session of this request."""
    caller = caller_of(request)
    rights = caller.credential
    expires_at = rights.expires_at if rights else None
    return JsonResponse(
        Session(
            name=caller.name,
            role=caller.role,
            isSession=caller.is_session,
            channels=list(rights.channels) if rights and rights.channels is not None else None,
            agents=list(rights.agents) if rights and rights.agents is not None else None,
            sender=rights.sender if rights else None,
            expiresAt=None if expires_at is None else millis(expires_at),
        )
    )


def access_of(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


def _credentials(request: Request) -> Credentials:
    return open_credentials(state_of(request).store)


def _is_code(text: str) -> bool:
    return text.startswith(PREFIXES["code"])


async def _session_of(request: Request) -> Caller | None:
    caller = await find_caller(request)
    return caller if caller is not None and caller.is_session else None


async def _end_session(request: Request) -> Credential | None:
    caller = await _session_of(request)
    ended = None if caller is None else caller.credential
    if ended is not None:
        await _credentials(request).end(ended.id)
        access_of(request).callers.forget()
    return ended


async def _log_in(request: Request, code: str) -> Response:
    """Consume the code and open its session."""
    found = await _credentials(request).take(digest_of(code)) if _is_code(code) else None
    return _invalid(request) if found is None else await open_session(request, found)


async def open_session(request: Request, rights: Credential | Grant) -> Response:
    """Replace the session of this browser by one with these rights, and redirect to the page."""
    state = state_of(request)
    await _end_session(request)
    grant = rights if isinstance(rights, Grant) else Grant.of(rights)
    life = state.settings.api_session
    session, opened = await issue(state.store, "session", grant, life)
    role, actor = {"role": opened.role}, actor_name(opened)
    entry = AuditEntry(actor=actor, action="logged_in", subject=opened.id, details=role)
    await state.store.audit(entry)
    answer = RedirectResponse("/", 303)
    answer.headers["set-cookie"] = session_cookie(request.scope, session, int(life.total_seconds()))
    return answer


def is_foreign(request: Request) -> bool:
    """Whether another site may have sent the browser here, or the browser only prefetches."""
    if "prefetch" in request.headers.get("sec-purpose", "") or "prefetch" in request.headers.get(
        "purpose", ""
    ):
        return True
    site = request.headers.get("sec-fetch-site")
    if site is None:
        # Browsers send Sec-Fetch-Site only to TLS and loopback addresses; programs do not ask for
        # HTML.
        return wants_html(request) and not is_loopback(request.url.hostname or "")
    return site not in ("none", "same-origin")


def _invalid(request: Request) -> Response:
    access_of(request).count_wrong(client_of(request.scope))
    if wants_html(request):
        return refusal(INVALID, has_provider=request.app.state.oidc is not None)
    raise ApiError(401, INVALID)
