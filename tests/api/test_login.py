"""One-time login links, sessions, logout and rotation; over real sockets (issue 13, item 14)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.api.limits import Limits
from holdfast.api.security.bootstrap_tokens import Role, rotate
from holdfast.api.security.credentials import CODE_LIFE, Grant, issue, login_link
from holdfast.api.security.guard import cookie_name, session_cookie
from holdfast.queue.audit import AuditFilter
from holdfast.settings import Settings
from holdfast.store.credentials import open_credentials
from tests.api.serving import LOOPBACK, secret_of, serving
from tests.api.test_access import ask, status

INVALID = "invalid or used login link; run `holdfast login` for a new one"


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture
def app(database_url: str) -> AgentHarness:
    return AgentHarness(echo, settings=Settings(database=database_url))


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest_asyncio.fixture
async def port(app: AgentHarness, limits: Limits) -> AsyncIterator[int]:
    async with serving(app, limits=limits) as port:
        yield port


async def code_for(app: AgentHarness, name: str = "ada", role: Role = "admin") -> str:
    """The path of a login link."""
    return (await login_link(app.store, "", Grant(name=name, role=role))).removeprefix("http://")


async def logged_in(app: AgentHarness, port: int, name: str = "ada", role: Role = "admin") -> str:
    """The cookie of a new session."""
    _, headers, _ = await ask(port, await code_for(app, name, role))
    return headers["set-cookie"].partition(";")[0]


async def test_issue_13_14_a_login_link_opens_a_session_that_is_no_token(
    app: AgentHarness, port: int
) -> None:
    code, headers, _ = await ask(port, await code_for(app, role="send"))
    assert (code, headers["location"], headers["cache-control"]) == (303, "/", "no-store")
    cookie, *attributes = headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=604800"} == set(attributes)
    secret = cookie.partition("=")[2]
    assert secret not in {secret_of(port, role) for role in ("read", "send", "admin")}
    assert await status(port, cookie=f"other=1; {cookie}") == 200
    assert await status(port, "/api/queue/dead/1/retry", "POST", cookie=cookie) == 403
    assert await status(port, authorization=f"Bearer {secret}") == 401, "a session is no token"
    _, _, body = await ask(port, "/api/session", cookie=cookie)
    answer = json.loads(body)
    assert (answer["name"], answer["role"], answer["isSession"]) == ("ada", "send", True)


async def test_a_login_link_works_once_even_for_two_at_the_same_time(
    app: AgentHarness, port: int
) -> None:
    link = await code_for(app)
    found = sorted(await asyncio.gather(*(status(port, link) for _ in range(8))))
    assert found == [303, *[401] * 7]


async def test_a_login_link_expires_within_minutes(app: AgentHarness, port: int) -> None:
    assert timedelta(0) < CODE_LIFE < timedelta(hours=1)
    link = await login_link(app.store, "", Grant(name="ada", role="admin"), -CODE_LIFE)
    assert await status(port, link) == 401


async def test_a_session_expires(app: AgentHarness, port: int) -> None:
    secret, _ = await issue(app.store, "session", Grant(name="ada", role="admin"), -CODE_LIFE)
    cookie = f"{cookie_name({'server': (LOOPBACK, port)})}={secret}"
    assert await status(port, cookie=cookie) == 401


@pytest.mark.parametrize(
    "link",
    ["/login", "/login?code=", "/login?code=wrong", "/login?code=hfc_%00%ff", "/login?token=x"],
)
async def test_a_wrong_login_link_is_a_page_for_browsers_and_json_for_others(
    port: int, link: str
) -> None:
    code, headers, body = await ask(port, link)
    assert (code, "set-cookie" in headers, json.loads(body)) == (401, False, {"error": INVALID})
    code, headers, body = await ask(port, link, accept="text/html,*/*;q=0.8")
    assert (code, "set-cookie" in headers, headers["content-type"]) == (
        401,
        False,
        "text/html; charset=utf-8",
    )
    assert "invalid or used login link; run <code>holdfast login</code> for a new one" in body


async def test_a_token_in_the_address_is_no_login_any_more(port: int) -> None:
    code, headers, _ = await ask(port, f"/login?token={secret_of(port, 'admin')}")
    assert (code, "set-cookie" in headers) == (401, False)


async def test_logout_ends_the_session_at_once(app: AgentHarness, port: int) -> None:
    cookie = await logged_in(app, port)
    assert await status(port, cookie=cookie) == 200
    code, headers, body = await ask(port, "/logout", "POST", cookie=cookie)
    assert (code, json.loads(body)) == (200, {"ok": True})
    assert "Max-Age=0" in headers["set-cookie"]
    assert await status(port, cookie=cookie) == 401
    assert await status(port, "/logout", "POST") == 200, "without a session nothing happens"


@pytest.mark.parametrize("limits", [Limits(caller_cache_seconds=0.0)])
async def test_a_rotated_token_is_refused_at_the_next_request_and_its_sessions_end(
    app: AgentHarness, port: int, limits: Limits
) -> None:
    old, cookie = secret_of(port, "admin"), await logged_in(app, port)
    reader = await logged_in(app, port, "bob", "read")
    assert app.settings is not None
    new = rotate(app.settings.home, "admin")
    assert await status(port, authorization=f"Bearer {old}") == 401
    assert await status(port, authorization=f"Bearer {new}") == 200
    assert await status(port, authorization=f"Bearer {secret_of(port, 'read')}") == 200
    assert await open_credentials(app.store).end_all("admin") == 1
    assert (await status(port, cookie=cookie), await status(port, cookie=reader)) == (401, 200)


async def test_a_removed_token_file_lets_nobody_in(app: AgentHarness, port: int) -> None:
    assert app.settings is not None
    (app.settings.home / "token-send").unlink()
    assert await status(port, authorization=f"Bearer {secret_of(port, 'send')}") == 401
    assert await status(port, authorization="Bearer ") == 401


FOREIGN = [
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    {"sec_purpose": "prefetch"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_login_by_a_foreign_page_asks_first_and_uses_nothing(
    app: AgentHarness, port: int, headers: dict[str, str]
) -> None:
    mine = await logged_in(app, port)
    link = await code_for(app, '<b>"mallory')
    for cookie in ({}, {"cookie": mine}):
        code, answer, body = await ask(port, link, "GET", None, **headers, **cookie)
        assert (code, "set-cookie" in answer) == (200, False)
        assert "&lt;b&gt;&quot;mallory" in body
        assert "<b>" not in body
    secret = link.partition("=")[2]
    form = f"code={secret}".encode()
    refused = (
        {"sec_fetch_site": "cross-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
    )
    for foreign in refused:
        assert (await ask(port, "/login", "POST", form, **foreign))[0] == 403
    own = {"origin": f"http://{LOOPBACK}:{port}", "sec_fetch_site": "same-origin"}
    code, answer, _ = await ask(port, "/login", "POST", form, **own)
    assert (code, answer["location"], "set-cookie" in answer) == (303, "/", True)


async def test_a_login_does_not_replace_the_session_of_somebody_else_unasked(
    app: AgentHarness, port: int
) -> None:
    mine = await logged_in(app, port)
    link = await code_for(app, "mallory")
    code, headers, body = await ask(port, link, cookie=mine)
    assert (code, "set-cookie" in headers) == (200, False)
    assert "You are logged in as ada" in body
    code, headers, _ = await ask(port, await code_for(app), cookie=mine)
    assert (code, "set-cookie" in headers) == (303, False), "the same person keeps the session"
    code, headers, _ = await ask(
        port, "/login", "POST", f"code={link.partition('=')[2]}".encode(), cookie=mine
    )
    assert (code, "set-cookie" in headers) == (303, True)
    assert await status(port, cookie=mine) == 401, "the session before it ended"


def test_over_tls_the_cookie_is_secure_and_bound_to_the_host() -> None:
    scope = {"scheme": "https", "server": (LOOPBACK, 3777)}
    cookie, *attributes = session_cookie(scope, "x", 60).split("; ")
    assert cookie == "__Host-holdfast_3777=x"
    assert {"Secure", "Path=/", "HttpOnly", "SameSite=Strict"} <= set(attributes)
    assert not session_cookie(scope | {"scheme": "http"}, "x", 60).startswith("__Host-")


@pytest.mark.parametrize(
    ("proxies", "is_believed"),
    [("", False), ("192.0.2.1", False), (f"192.0.2.1, {LOOPBACK}/32", True)],
)
async def test_a_forwarded_scheme_is_believed_of_configured_proxies_alone(
    app: AgentHarness, proxies: str, is_believed: bool
) -> None:
    assert app.settings is not None
    app.settings = app.settings.model_copy(update={"api_proxies": proxies})
    async with serving(app) as port:
        code, headers, _ = await ask(port, await code_for(app), x_forwarded_proto="https")
        cookie, *attributes = headers["set-cookie"].split("; ")
        assert (code, cookie.startswith("__Host-"), "Secure" in attributes) == (
            303,
            is_believed,
            is_believed,
        )
        assert await status(port, cookie=cookie, x_forwarded_proto="https") == 200
        assert await status(port, cookie=cookie) == (401 if is_believed else 200), (
            "never without TLS"
        )
        _, plain, _ = await ask(port, await code_for(app), x_forwarded_proto="http")
        assert not plain["set-cookie"].startswith("__Host-")


async def test_many_wrong_links_have_to_wait(
    app: AgentHarness,
) -> None:
    limits = Limits(wrong_tokens_per_second=0.001, wrong_tokens_burst_seconds=3000)
    async with serving(app, limits=limits) as port:
        assert [await status(port, f"/login?code=hfc_{n}") for n in range(5)] == [
            401,
            401,
            401,
            429,
            429,
        ]


async def test_no_secret_is_stored_as_it_is(app: AgentHarness, port: int) -> None:
    link, cookie = await code_for(app), await logged_in(app, port)
    assert app.settings is not None
    files = sorted(Path(app.settings.database.removeprefix("sqlite:///")).parent.glob("*.db*"))
    kept = b"".join(file.read_bytes() for file in files if file.is_file())
    assert b"session_" in kept
    for secret in (link, cookie):
        assert secret.partition("=")[2].encode() not in kept


async def test_logins_and_logouts_are_in_the_audit_log(app: AgentHarness, port: int) -> None:
    cookie = await logged_in(app, port, role="read")
    await ask(port, "/logout", "POST", cookie=cookie)
    out, entered = await app.store.audit_log(AuditFilter())
    assert (entered.actor, entered.action, entered.details) == (
        "session:ada",
        "logged_in",
        {"role": "read"},
    )
    assert (out.actor, out.action, out.subject) == ("session:ada", "logged_out", entered.subject)
