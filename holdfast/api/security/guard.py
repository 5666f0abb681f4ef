"""Checks before every route: Host, Origin, request rate and size; and the caller of a request."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.body import MAX_BYTES, TOO_LARGE
from holdfast.api.limits import Limits
from holdfast.api.response import ApiError
from holdfast.api.security.bootstrap_tokens import Tokens
from holdfast.api.security.caller import ANYBODY, Caller, Callers, bootstrap
from holdfast.api.security.rate import Rate
from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.store.credentials import Kind

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - to be recognised, not bound
HOSTS_CACHED = 64
HOST = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]*)?")
"""A Host header: a name or an address, and a port. `urlsplit` finds a name in more than that."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; font-src 'self'; manifest-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = (
    f"content-security-policy: {CONTENT_SECURITY_POLICY}\r\n"
    "cross-origin-opener-policy: same-origin\r\n"
    "cross-origin-resource-policy: same-origin\r\n"
    "permissions-policy: camera=(), geolocation=(), microphone=()\r\n"
    "referrer-policy: no-referrer\r\n"
    "x-content-type-options: nosniff\r\n"
    "x-frame-options: DENY\r\n"
).encode()
"""Headers of every response, as lines. The connection adds them: uvicorn would check each of them
again for every response."""
UPLOAD_PATH = "/api/files"
NOT_KEPT = (b"cache-control", b"no-store")

Headers = MutableMapping[bytes, bytes]
HEADERS = "holdfast.headers"
"""Key of the headers in the scope of a request, as a mapping."""


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_open(settings: Settings, host: str, *, metrics: bool = False) -> None:
    """Refuse to serve without tokens anywhere but on loopback."""
    if _is_open(settings, metrics) and not is_loopback(host):
        option = "--no-auth" if settings.api_auth == "none" else 'metrics_auth = "none"'
        raise HoldfastError(
            f"{option} works on loopback only, not at {host}: leave it out, or set --host 127.0.0.1"
        )


def _is_open(settings: Settings, metrics: bool) -> bool:
    return settings.api_auth == "none" or (metrics and settings.metrics_auth == "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Access rules of a server. Without tokens everybody has access: for loopback only."""

    host: str
    tokens: Tokens | None
    callers: Callers
    names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    rate: float = 5000.0
    wrong: Rate

    @classmethod
    def of(
        cls,
        settings: Settings,
        host: str,
        callers: Callers,
        limits: Limits,
        *,
        metrics: bool = False,
    ) -> Access:
        """Read the settings; `metrics` is for a server that has nothing else."""
        refuse_open(settings, host, metrics=metrics)
        tokens = None if _is_open(settings, metrics) else Tokens(settings.home)
        return cls(
            host=host,
            tokens=tokens,
            callers=callers,
            names=_host_names(settings, host),
            origins=frozenset(_split_names(settings.api_origins)),
            rate=settings.api_rate,
            wrong=Rate(limits.wrong_tokens_per_second, limits.wrong_tokens_burst_seconds),
        )

    async def caller(self, token: str, session: str, client: str) -> Caller | None:
        """Find the caller by its token, else by its session. Too many wrong ones are refused."""
        if self.tokens is None:
            return ANYBODY
        if token:
            role = self.tokens.role_of(token)
            return (
                bootstrap(role)
                if role is not None
                else await self._find_stored("token", token, client)
            )
        return await self._find_stored("session", session, client) if session else None

    async def _find_stored(self, kind: Kind, secret: str, client: str) -> Caller | None:
        found = self.callers.find_cached(kind, secret)
        if found is None and self.wrong.may_ask(client):
            found = await self.callers.find(kind, secret)
        if found is None:
            self.count_wrong(client)
        return found

    def count_wrong(self, client: str) -> None:
        """Count a wrong token, session or login code of a client."""
        if not self.wrong.take(client):
            raise ApiError(
                429, "too many wrong tokens; try again later", headers={"retry-after": "1"}
            )

    def knows_host(self, value: str) -> bool:
        """Whether a Host header names this server.

        This stops DNS rebinding: a page whose name was made to point here sends its own name."""
        if not HOST.fullmatch(value):
            return False
        try:
            name = urlsplit(f"//{value}").hostname or ""
        except ValueError:
            return False
        return name in self.names or (self.host in EVERY_ADDRESS and _is_address(name))

    def knows_origin(self, origin: str, host: str) -> bool:
        """Whether an Origin is our own, with or without TLS, or configured."""
        return (
            origin.lower() in (f"http://{host}", f"https://{host}")
            or origin.lower() in self.origins
        )


def _host_names(settings: Settings, host: str) -> frozenset[str]:
    """Return the names under which browsers may reach this server."""
    names = {host.lower(), *LOOPBACK_NAMES, *_split_names(settings.api_hosts)}
    names |= {urlsplit(settings.api_url).hostname or host.lower()}
    if host in EVERY_ADDRESS:
        names.add(socket.gethostname().lower())
    return frozenset(names)


def _split_names(names: str) -> list[str]:
    return [name.strip().lower().rstrip("/") for name in names.split(",") if name.strip()]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def cookie_name(scope: Scope) -> str:
    """Return the name of the session cookie.

    It contains the port: cookies ignore ports, and two servers may run on one machine."""
    prefix = "__Host-" if scope.get("scheme") == "https" else ""
    return f"{prefix}holdfast_{(scope.get('server') or ('', 0))[1]}"


class Guard:
    """ASGI middleware that refuses invalid requests and forbids caching of responses."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._knows_host = lru_cache(HOSTS_CACHED)(access.knows_host)
        self._rate = Rate(access.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _forbid_caching(message)
            await send(message)

        try:
            headers = scope[HEADERS] = dict(scope["headers"])
            self._admit(scope, headers)
        except ApiError as refused:
            return await refused.answer(scope, receive, send_guarded)
        return await self._app(scope, receive, send_guarded)

    def _admit(self, scope: Scope, headers: Headers) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._knows_host(host):
            raise ApiError(421, "unknown Host header; add the name to `api_hosts`")
        origin = headers.get(b"origin")
        if origin is not None and not self._access.knows_origin(origin.decode("latin-1"), host):
            raise ApiError(
                403, "unknown Origin header; add the origin to `api_origins` to allow it"
            )
        client = client_of(scope)
        if not self._rate.take(client):
            raise ApiError(
                429, "too many requests; try again in a second", headers={"retry-after": "1"}
            )
        # A file may be longer; its route limits it.
        is_upload = scope["path"] == UPLOAD_PATH and scope["method"] == "POST"
        if _length(headers) > MAX_BYTES and not is_upload:
            raise ApiError(413, TOO_LARGE)


async def find_caller(request: Request) -> Caller | None:
    """Find the caller by token or session cookie, once per request."""
    scope = request.scope
    if "holdfast.caller" not in scope:
        access: Access = request.app.state.access
        headers = scope.get(HEADERS) or dict(scope["headers"])
        token = _bearer(headers)
        # Reading the cookie costs more than all else here, and a token wins over it anyway.
        session = "" if token else _cookie(headers, cookie_name(scope))
        scope["holdfast.caller"] = await access.caller(token, session, client_of(scope))
    found: Caller | None = scope["holdfast.caller"]
    return found


def cookie_in(request: Request, name: str) -> str:
    """The value of a cookie, '' if there is none."""
    return _cookie(dict(request.scope["headers"]), name)


def client_of(scope: Scope) -> str:
    address: str = (scope.get("client") or ("", 0))[0]
    return address


def _forbid_caching(message: Message) -> None:
    """Add `cache-control: no-store`, unless the response has a cache-control of its own."""
    headers: list[tuple[bytes, bytes]] = message["headers"]
    if not any(name == b"cache-control" for name, _ in headers):
        headers.append(NOT_KEPT)


def _length(headers: Headers) -> int:
    value = headers.get(b"content-length", b"")
    return int(value) if value.isdigit() else 0


def _bearer(headers: Headers) -> str:
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _cookie(headers: Headers, name: str) -> str:
    for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value
    return ""


def session_cookie(scope: Scope, session: str, seconds: int) -> str:
    """Return Set-Cookie for a session; no script or other site can use it. 0 seconds removes it."""
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return (
        f"{cookie_name(scope)}={session}; Max-Age={seconds}; Path=/; HttpOnly;"
        f" SameSite=Strict{secure}"
    )
