"""Login with OpenID Connect: a real provider, and one on loopback that gives wrong answers."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
from joserfc.jwk import RSAKey

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.api.limits import Limits
from holdfast.api.security import oidc
from holdfast.errors import HoldfastError
from holdfast.queue.audit import AuditFilter
from holdfast.settings import Settings
from tests.api.oidc_provider import CLIENT, SECRET, LoopbackProvider, loopback_provider
from tests.api.serving import serving
from tests.api.test_access import Answered, ask, status

ROLES = "staff = send, ops = admin, guests=read"


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture
def provider() -> Iterator[LoopbackProvider]:
    with loopback_provider() as provider:
        yield provider


def settings_for(issuer: str, database: str) -> Settings:
    return Settings(
        database=database,
        oidc_issuer=issuer,
        oidc_client_id=CLIENT,
        oidc_client_secret=SECRET,
        oidc_roles=ROLES,
    )


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest_asyncio.fixture
async def served(
    provider: LoopbackProvider, database_url: str, limits: Limits
) -> AsyncIterator[tuple[int, AgentHarness]]:
    app = AgentHarness(echo, settings=settings_for(provider.address, database_url))
    async with serving(app, limits=limits) as port:
        yield port, app


def cookies_of(headers: dict[str, str]) -> str:
    return headers["set-cookie"].partition(";")[0]


async def come_back(port: int, provider: LoopbackProvider, **request_headers: str) -> Answered:
    """The answer to a browser that comes back from the provider."""
    code, headers, _ = await ask(port, "/login/oidc")
    assert code == 303
    return await ask(
        port,
        provider.authorize(headers["location"]),
        "GET",
        None,
        cookie=cookies_of(headers),
        **request_headers,
    )


async def session(port: int, headers: dict[str, str]) -> dict[str, Any]:
    code, _, body = await ask(port, "/api/session", cookie=cookies_of(headers))
    assert code == 200
    found: dict[str, Any] = json.loads(body)
    return found


async def test_a_person_gets_the_role_of_their_groups(
    served: tuple[int, AgentHarness], provider: LoopbackProvider
) -> None:
    port, app = served
    code, headers, _ = await come_back(port, provider)
    assert (code, headers["location"]) == (303, "/")
    assert "SameSite=Strict" in headers["set-cookie"]
    found = await session(port, headers)
    assert (found["name"], found["role"], found["sender"], found["isSession"]) == (
        "ada",
        "send",
        "ada",
        True,
    )
    [entry] = await app.store.audit_log(AuditFilter(action="logged_in"))
    assert entry.actor == "session:ada"
    body = json.dumps({"message": "hi", "sender": "bob"}).encode()
    assert (await ask(port, "/api/message", "POST", body, cookie=cookies_of(headers)))[0] == 403, (
        "no other's name"
    )
    provider.claims["groups"] = ["guests", "ops", "others"]
    _, headers, _ = await come_back(port, provider)
    assert (await session(port, headers))["role"] == "admin", "the greatest of them"
    assert await status(port, "/logout", "POST", cookie=cookies_of(headers)) == 200
    assert await status(port, cookie=cookies_of(headers)) == 401


async def test_a_person_sees_their_own_messages_at_the_next_login_and_nobody_elses(
    served: tuple[int, AgentHarness], provider: LoopbackProvider
) -> None:
    port, app = served
    _, headers, _ = await come_back(port, provider)
    await ask(port, "/api/message", "POST", b'{"message": "mine"}', cookie=cookies_of(headers))
    async with asyncio.timeout(60):
        while not await app.store.waiting("outbox", "api"):  # noqa: ASYNC110 - echo runs on
            await asyncio.sleep(0.02)
    for subject, number in (("17", 1), ("18", 0)):
        provider.claims["sub"] = subject
        _, headers, _ = await come_back(port, provider)
        _, _, body = await ask(port, "/api/responses", cookie=cookies_of(headers))
        assert len(json.loads(body)) == number


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"iss": "http://evil.example"}, "another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"aud": ["other", "third"]}, "another audience"),
        ({"aud": [CLIENT, "other"], "azp": "other"}, "another party"),
        ({"exp": 1}, "an expiry that has passed"),
        ({"exp": None}, "an expiry that has passed"),
        ({"iat": 4_000_000_000}, "a time that is to come"),
        ({"nonce": "another"}, "another nonce"),
        ({"nonce": None}, "another nonce"),
        ({"sub": ""}, "no subject"),
        ({"groups": ["others"]}, "is in no group that has a role here"),
        ({"groups": {"staff": True}}, "is in no group that has a role here"),
    ],
    ids=str,
)
async def test_a_wrong_id_token_or_group_is_refused_with_a_page(
    served: tuple[int, AgentHarness],
    provider: LoopbackProvider,
    claims: dict[str, Any],
    problem: str,
) -> None:
    provider.claims |= claims
    code, headers, body = await come_back(served[0], provider)
    assert (code, "set-cookie" in headers) == (403, False)
    assert problem in json.loads(body)["error"]
    code, headers, body = await come_back(served[0], provider, accept="text/html")
    assert (code, headers["content-type"], problem in body) == (
        403,
        "text/html; charset=utf-8",
        True,
    )


@pytest.mark.parametrize("limits", [Limits(oidc_key_seconds=0.0)])
async def test_a_signature_of_another_key_is_refused_and_new_keys_are_found(
    served: tuple[int, AgentHarness], provider: LoopbackProvider, limits: Limits
) -> None:
    port, _ = served
    assert (await come_back(port, provider))[0] == 303
    provider.key = RSAKey.generate_key(2048, {"kid": "one"})
    code, _, body = await come_back(port, provider)
    assert (code, "not signed" in body) == (403, True)
    provider.published = provider.key
    assert (await come_back(port, provider))[0] == 303


async def test_a_login_that_this_browser_did_not_begin_is_refused(
    served: tuple[int, AgentHarness], provider: LoopbackProvider
) -> None:
    port, _ = served
    _, headers, _ = await ask(port, "/login/oidc")
    back = provider.authorize(headers["location"])
    for cookie in (
        {},
        {"cookie": cookies_of(headers).replace("=", "=x", 1)},
        {"cookie": "holdfast=1.2.3"},
    ):
        code, _, body = await ask(port, back, "GET", None, **cookie)
        assert (code, "not begun in this browser" in body) == (400, True)
    code, headers, _ = await ask(port, "/login/oidc", "GET", None, sec_fetch_site="cross-site")
    assert (code, headers["location"], "set-cookie" in headers) == (303, "/login", False), (
        "no foreign page begins one"
    )


async def test_a_nonce_with_letters_of_no_token_is_another(
    served: tuple[int, AgentHarness], provider: LoopbackProvider
) -> None:
    port, _ = served
    _, headers, _ = await ask(port, "/login/oidc")
    back = provider.authorize(headers["location"])
    state, _, verifier = cookies_of(headers).split(".")
    code, _, body = await ask(port, back, "GET", None, cookie=f"{state}.n\xf6nce.{verifier}")
    assert (code, "another nonce" in body) == (403, True)


async def test_another_verifier_gets_nothing(
    served: tuple[int, AgentHarness], provider: LoopbackProvider
) -> None:
    port, _ = served
    _, headers, _ = await ask(port, "/login/oidc")
    back = provider.authorize(headers["location"])
    head, verifier = cookies_of(headers).rsplit(".", 1)
    code, _, body = await ask(port, back, "GET", None, cookie=f"{head}.{verifier[::-1]}")
    assert (code, "the provider answered 400" in body) == (502, True)


async def test_groups_may_stand_in_the_user_information_of_the_same_person(
    served: tuple[int, AgentHarness], provider: LoopbackProvider
) -> None:
    del provider.claims["groups"]
    provider.user_info = {"sub": "18", "groups": ["ops"]}
    assert (await come_back(served[0], provider))[0] == 403
    provider.user_info["sub"] = "17"
    assert (await come_back(served[0], provider))[0] == 303


async def test_a_provider_that_is_away_or_refuses_is_a_page(database_url: str) -> None:
    app = AgentHarness(echo, settings=settings_for("http://127.0.0.1:1", database_url))
    async with serving(app) as port:
        code, _, body = await ask(port, "/login/oidc", accept="text/html")
        assert (code, "the provider cannot be asked" in body) == (502, True)
        assert "Log in with your account" in (await ask(port, "/login", accept="text/html"))[2]


async def test_without_a_provider_there_is_no_such_login(database_url: str) -> None:
    async with serving(AgentHarness(echo, settings=Settings(database=database_url))) as port:
        assert (await status(port, "/login/oidc"), await status(port, "/login/oidc/callback")) == (
            404,
            404,
        )
        assert "Log in with your account" not in (await ask(port, "/login", accept="text/html"))[2]


def test_only_https_or_loopback_is_asked() -> None:
    with pytest.raises(oidc.ProviderError, match="neither https nor on this machine"):
        oidc._fetch("http://accounts.example/keys", None, {})
    with pytest.raises(oidc.ProviderError, match="neither https nor on this machine"):
        oidc._fetch("file:///etc/passwd", None, {})


@pytest.mark.parametrize("roles", ["staff", "staff = root", "= admin"])
def test_roles_that_are_none_stop_the_start(roles: str) -> None:
    with pytest.raises(HoldfastError, match="oidc_roles"):
        oidc.roles_of(roles)


@pytest.fixture
def real_provider() -> Iterator[str]:
    """oidc-provider-mock as a process: authlib's own implementation of a provider."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    user = json.dumps({"sub": "grace", "name": "Grace", "groups": ["ops"]})
    command = [
        sys.executable,
        "-m",
        "oidc_provider_mock",
        "--port",
        str(port),
        "--user-claims",
        user,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://localhost:{port}"
    try:
        give_up_at = time.monotonic() + 60
        while time.monotonic() < give_up_at:
            assert process.poll() is None, "the provider did not start"
            with (
                suppress(OSError),
                urllib.request.urlopen(f"{address}/.well-known/openid-configuration"),
            ):
                break
            time.sleep(0.05)
        yield address
    finally:
        process.kill()
        process.wait()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _consent(location: str) -> str:
    """Log in on the provider's form. Returns the address that it redirects to."""
    form = urllib.parse.urlencode({"sub": "grace"}).encode()
    try:
        urllib.request.build_opener(_Stay).open(location, form)
    except urllib.error.HTTPError as error:
        with error:
            return str(error.headers["location"])
    raise AssertionError("the provider leads nowhere")


async def test_a_real_provider_logs_a_person_in(real_provider: str, database_url: str) -> None:
    async with serving(
        AgentHarness(echo, settings=settings_for(real_provider, database_url))
    ) as port:
        code, headers, _ = await ask(port, "/login/oidc")
        assert code == 303
        back = await asyncio.to_thread(_consent, headers["location"])
        path = re.sub(r"^http://[^/]+", "", back)
        code, after, body = await ask(port, path, "GET", None, cookie=cookies_of(headers))
        assert code == 303, body
        found = await session(port, after)
        assert (found["name"], found["role"]) == ("Grace", "admin")
