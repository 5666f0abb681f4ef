"""Access over real sockets: tokens and roles, cookies, hosts and origins, rate limits."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.api.app import create_app
from holdfast.api.limits import Limits
from holdfast.api.route import ROLE
from holdfast.api.routes.docs import document_of
from holdfast.api.security.bootstrap_tokens import ROLES, Role
from holdfast.api.security.guard import CONTENT_SECURITY_POLICY
from holdfast.api.security.rate import MOST_CLIENTS, Rate
from holdfast.settings import Settings
from tests.api.serving import LOOPBACK, secret_of, serving

Answered = tuple[int, dict[str, str], str]


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture
def app(database_url: str) -> AgentHarness:
    return AgentHarness(echo, settings=Settings(database=database_url))


@pytest_asyncio.fixture
async def port(app: AgentHarness) -> AsyncIterator[int]:
    async with serving(app) as port:
        yield port


async def ask(
    port: int,
    path: str = "/api/queue/status",
    method: str = "GET",
    body: bytes | None = None,
    **headers: str,
) -> Answered:
    """Exactly these headers; names with _ for -."""

    def asking() -> Answered:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=10)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host="host" in named, skip_accept_encoding=True)
        for name, value in named.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        found = (
            answer.status,
            {name.lower(): value for name, value in answer.getheaders()},
            answer.read().decode(),
        )
        connection.close()
        return found

    return await asyncio.to_thread(asking)


async def status(
    port: int, path: str = "/api/queue/status", method: str = "GET", **headers: str
) -> int:
    return (await ask(port, path, method, None, **headers))[0]


def bearer(port: int, role: Role = "admin") -> str:
    return f"Bearer {secret_of(port, role)}"


async def test_every_route_needs_its_role_and_says_so(app: AgentHarness, port: int) -> None:
    document = document_of(create_app(app, LOOPBACK))
    checked = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            needed: Role | None = operation.get(ROLE)
            if needed is None:
                assert path in ("/healthz", "/readyz", "/login", "/logout"), path
                continue
            filled = path.replace("{id}", "0").replace("{team}", "x")
            code, headers, body = await ask(port, filled, method.upper())
            assert (code, headers["www-authenticate"], list(json.loads(body))) == (
                401,
                "Bearer",
                ["error"],
            )
            assert await status(port, filled, method.upper(), authorization="Bearer wrong") == 401
            for role in ROLES[: ROLES.index(needed)]:
                assert (
                    await status(port, filled, method.upper(), authorization=bearer(port, role))
                    == 403
                )
            checked += 1
    assert checked >= 18


async def test_health_is_open(port: int) -> None:
    assert (await status(port, "/healthz"), await status(port, "/readyz")) == (200, 200)


@pytest.mark.parametrize(
    "value", ["{}", "bearer {}", "Basic {}", "Bearer", "Bearer  ", "Bearer {}x", "Bearer \xe9"]
)
async def test_only_a_bearer_token_as_it_is_counts(port: int, value: str) -> None:
    expected = 200 if value.startswith("bearer") else 401
    assert await status(port, authorization=value.format(secret_of(port, "admin"))) == expected


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:3777",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "",
        "[",
        "a b",
        "evil.example@localhost",
        "localhost/evil.example",
        "localhost?evil.example",
        "localhost#evil.example",
        "[::1]evil.example",
        "local\thost",
    ],
)
async def test_a_name_made_to_point_here_is_refused_whatever_else_is_right(
    port: int, host: str
) -> None:
    code, _, body = await ask(port, host=host, authorization=bearer(port))
    assert (code, list(json.loads(body))) == (421, ["error"])
    assert await status(port, "/healthz", host=host) == 421


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:1", "localhost:", "LOCALHOST", "[::1]:3777", " localhost\t"]
)
async def test_names_of_this_machine_are_known_at_any_port(port: int, host: str) -> None:
    assert await status(port, host=host, authorization=bearer(port)) == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1", "", "file://"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_foreign_page_is_refused_also_with_a_token(
    port: int, method: str, origin: str
) -> None:
    code, headers, body = await ask(
        port,
        "/api/message" if method == "POST" else "/api/agents",
        method,
        origin=origin,
        authorization=bearer(port),
    )
    assert (code, list(json.loads(body))) == (403, ["error"])
    assert "access-control-allow-origin" not in headers


async def test_our_own_page_may_ask(port: int) -> None:
    own = f"http://{LOOPBACK}:{port}"
    assert await status(port, origin=own, authorization=bearer(port)) == 200
    assert (
        await status(
            port,
            host=f"localhost:{port}",
            origin=f"http://localhost:{port}",
            authorization=bearer(port),
        )
        == 200
    )


async def test_a_cross_site_form_that_posts_json_as_text_stores_nothing(port: int) -> None:
    body = b'{"message": "run rm -rf"}'
    cross = {
        "origin": "http://evil.example",
        "content_type": "text/plain",
        "authorization": bearer(port),
    }
    assert (await ask(port, "/api/message", "POST", body, **cross))[0] == 403
    _, _, found = await ask(port, authorization=bearer(port))
    assert json.loads(found)["pending"] + json.loads(found)["completed"] == 0


async def test_without_cors_a_preflight_allows_nothing(port: int) -> None:
    code, headers, _ = await ask(
        port,
        "/api/message",
        "OPTIONS",
        origin="http://evil.example",
        access_control_request_method="POST",
    )
    assert code == 403
    assert not any(name.startswith("access-control") for name in headers)


async def test_a_configured_origin_may_ask_with_a_token(app: AgentHarness) -> None:
    assert app.settings is not None
    app.settings = app.settings.model_copy(
        update={"api_origins": "https://chat.example, https://other.example/"}
    )
    async with serving(app) as port:
        page = {"origin": "https://chat.example", "access_control_request_method": "POST"}
        code, headers, _ = await ask(
            port,
            "/api/message",
            "OPTIONS",
            None,
            **page,
            access_control_request_headers="authorization, content-type",
        )
        assert (code, headers["access-control-allow-origin"]) == (200, "https://chat.example")
        assert await status(port, origin="https://chat.example") == 401
        code, headers, _ = await ask(
            port, origin="https://other.example", authorization=bearer(port)
        )
        assert (code, headers["access-control-allow-origin"]) == (200, "https://other.example")
        assert await status(port, origin="https://evil.example", authorization=bearer(port)) == 403


async def test_a_configured_host_is_known(app: AgentHarness) -> None:
    assert app.settings is not None
    app.settings = app.settings.model_copy(update={"api_hosts": "Agents.Example, build"})
    async with serving(app) as port:
        for host in ("agents.example", "build:443"):
            assert await status(port, host=host, authorization=bearer(port)) == 200
        assert await status(port, host="other.example", authorization=bearer(port)) == 421


@pytest.mark.parametrize("path", ["/api/queue/status", "/healthz", "/nothing", "/login?code=x"])
async def test_every_answer_has_the_security_headers(port: int, path: str) -> None:
    _, headers, _ = await ask(port, path)
    assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


async def test_too_many_wrong_tokens_have_to_wait_and_a_right_one_does_not(
    app: AgentHarness,
) -> None:
    limits = Limits(wrong_tokens_per_second=0.001, wrong_tokens_burst_seconds=3000)
    async with serving(app, limits=limits) as port:
        found = [await status(port, authorization=f"Bearer wrong{number}") for number in range(5)]
        assert found == [401, 401, 401, 429, 429]
        assert await status(port, "/login?code=wrong") == 429
        assert (await status(port), await status(port, authorization=bearer(port))) == (401, 200)


async def test_a_client_that_asks_too_often_has_to_wait(app: AgentHarness) -> None:
    assert app.settings is not None
    app.settings = app.settings.model_copy(update={"api_rate": 5.0})
    async with serving(app) as port:
        found = [await ask(port, "/healthz") for _ in range(20)]
    refused = [headers for code, headers, _ in found if code == 429]
    assert {code for code, _, _ in found} == {200, 429}
    assert refused[0]["retry-after"] == "1"


async def test_a_connection_that_never_completes_a_request_is_closed(app: AgentHarness) -> None:
    async with serving(app, limits=Limits(head_seconds=0.2)) as port, asyncio.timeout(10):
        for part in (b"", b"GET / HTTP/1.1\r\nhost: loc"):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            writer.write(part)
            assert await reader.read() == b""
            writer.close()


@pytest.mark.parametrize(
    ("proxies", "expected"),
    [("", [200, 429]), ("192.0.2.1", [200, 429]), (f"192.0.2.1, {LOOPBACK}/32", [200])],
)
async def test_forwarded_addresses_are_believed_of_configured_proxies_alone(
    app: AgentHarness, proxies: str, expected: list[int]
) -> None:
    """A client that can choose its address would have no rate limit."""
    assert app.settings is not None
    app.settings = app.settings.model_copy(update={"api_rate": 1.0, "api_proxies": proxies})
    async with serving(app) as port:
        found = [
            await status(port, "/healthz", x_forwarded_for=f"198.51.100.{number}")
            for number in range(5)
        ]
    assert sorted(set(found)) == expected


async def test_no_token_is_in_any_log_line_or_answer(
    app: AgentHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.telemetry.logs import TextLines

    caplog.set_level(logging.DEBUG)
    async with serving(app) as port:
        token = secret_of(port, "admin")

        async def broken(*_: Any) -> Any:
            raise RuntimeError(f"no place for {token}")

        monkeypatch.setattr(app.store, "counts", broken)
        code, _, body = await ask(port, authorization=f"Bearer {token}")
        answers = [
            body,
            (await ask(port, f"/login?code={token}"))[2],
            (await ask(port, f"/x?token={token}"))[2],
        ]
    assert code == 500
    assert token not in "".join(answers)
    lines = "\n".join(TextLines().format(record) for record in caplog.records)
    assert "a request failed" in lines
    assert token not in lines


def test_a_bucket_fills_with_time_and_clients_do_not_share() -> None:
    now = [0.0]
    rate = Rate(2, 1, lambda: now[0])
    assert [rate.take("a") for _ in range(3)] == [True, True, False]
    assert rate.take("b")
    now[0] = 0.5
    assert [rate.take("a") for _ in range(2)] == [True, False]
    for number in range(MOST_CLIENTS + 1):
        rate.take(str(number))
    assert len(rate._buckets) == MOST_CLIENTS
