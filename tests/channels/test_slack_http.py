"""Requests at /slack/events: they need Slack's signature and none of our tokens."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from holdfast.agents.echo import echo
from holdfast.app import AgentHarness
from holdfast.settings import Settings
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.sockets import sign
from tests.api.serving import serving
from tests.steps import both_engines, finished

pytestmark = both_engines


@pytest.fixture(autouse=True)
def by_http(slack: FakeSlack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_APP_TOKEN")
    monkeypatch.setenv("SLACK_SIGNING_SECRET", slack.signing_secret)


@asynccontextmanager
async def events_url(app: AgentHarness) -> AsyncIterator[str]:
    async with serving(app) as port:
        yield f"http://127.0.0.1:{port}/slack/events"


async def test_a_signed_mention_is_answered_once_though_it_comes_again(
    slack: FakeSlack, settings: Settings
) -> None:
    app = AgentHarness(echo, settings=settings)
    slack.faults.lose_acks = 2
    async with events_url(app) as url:
        slack.sockets.request_url = url
        ts = await slack.mention("hello")
        assert [reply["text"] for reply in await slack.replies(ts)] == ["you said hello"]
        await slack.until(lambda: slack.sockets.acked)
        await finished(app.store, queue="outbox")
    assert len(slack.bot_messages(ts)) == 1
    assert sum(slack.sockets.sent.values()) >= 3


async def test_unsigned_and_outdated_requests_are_refused(
    slack: FakeSlack, settings: Settings
) -> None:
    app = AgentHarness(echo, settings=settings)
    body = json.dumps(
        {"type": "event_callback", "event": {"type": "app_mention", "channel": "C1", "ts": "1.2"}}
    )
    async with events_url(app) as url, httpx.AsyncClient() as client:
        wrong = await client.post(url, content=body, headers=sign("other secret", body))
        old = await client.post(
            url, content=body, headers=sign(slack.signing_secret, body, time.time() - 600)
        )
        bare = await client.post(url, content=body)
        assert [answer.status_code for answer in (wrong, old, bare)] == [401, 401, 401]
        assert await app.store.counts() == []


async def test_the_url_verification_of_slack_is_answered(
    slack: FakeSlack, settings: Settings
) -> None:
    body = json.dumps({"type": "url_verification", "challenge": "abc", "token": "t"})
    async with (
        events_url(AgentHarness(echo, settings=settings)) as url,
        httpx.AsyncClient() as client,
    ):
        await slack.until(lambda: slack.faults.calls["auth.test"])
        answer = await client.post(url, content=body, headers=sign(slack.signing_secret, body))
        while answer.status_code == 503:
            answer = await client.post(url, content=body, headers=sign(slack.signing_secret, body))
        assert (answer.status_code, answer.json()) == (200, {"challenge": "abc"})


NO_NUMBERS = ("", "x", "1.5", "-1", "nan", "9" * 5000, "1e9", "0x10", "\xb2")


@pytest.mark.parametrize("timestamp", NO_NUMBERS)
async def test_a_timestamp_that_is_no_number_is_a_401(
    slack: FakeSlack, settings: Settings, timestamp: str
) -> None:
    async with (
        events_url(AgentHarness(echo, settings=settings)) as url,
        httpx.AsyncClient() as client,
    ):
        signed = sign(slack.signing_secret, "{}")
        for signature in (signed["x-slack-signature"].encode(), b"\xe9", b""):
            headers = {
                b"x-slack-request-timestamp": timestamp.encode("latin-1"),
                b"x-slack-signature": signature,
            }
            assert (await client.post(url, content="{}", headers=headers)).status_code == 401


@pytest.mark.parametrize("body", [b"\xff\xfe", b'{"event": "\xff"}', b"\xed\xa0\x80"])
async def test_a_body_that_is_not_utf_8_is_a_400(
    slack: FakeSlack, settings: Settings, body: bytes
) -> None:
    async with (
        events_url(AgentHarness(echo, settings=settings)) as url,
        httpx.AsyncClient() as client,
    ):
        headers = sign(slack.signing_secret, "{}")
        assert (await client.post(url, content=body, headers=headers)).status_code == 400


@pytest.mark.parametrize(
    "body", ["[]", "null", "5", '"x"', "", "x", "[" * 100_000, "{", "a=b", "payload=[]"]
)
async def test_signed_json_that_is_no_object_is_a_400(
    slack: FakeSlack, settings: Settings, body: str
) -> None:
    async with (
        events_url(AgentHarness(echo, settings=settings)) as url,
        httpx.AsyncClient() as client,
    ):
        headers = {"content-type": "application/json"} | sign(slack.signing_secret, body)
        assert (await client.post(url, content=body, headers=headers)).status_code == 400


BODIES = [
    *(
        "[]",
        "[1]",
        "null",
        "7",
        '"text"',
        "not json",
        "",
        "[" * 100_000,
        '{"event":' * 50_000,
        "1" * 10_000,
    ),
    '{"event": 5}',
    '{"type": "event_callback", "event": []}',
    '{"type": "event_callback", "event": {"channel": {}, "ts": [1]}, "authorizations": 3}',
    '{"type": "event_callback", "team_id": {"a": 1}, "event": {"type": 1, "user": {}}}',
    '{"type": {}, "payload": "x"}',
    '{"type": "url_verification"}',
    '{"command": 1, "ssl_check": 1}',
    '{"team": 1.5}',
    '{"user": 7, "enterprise": [3], "channel": 1, "view": "x", "authorizations": [{}]}',
    '\ufeff{"type": "event_callback", "event": {"type": "app_mention"}}',
]


async def test_a_signed_body_that_is_no_event_is_no_error_of_ours(
    slack: FakeSlack, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    app = AgentHarness(echo, settings=settings)
    async with events_url(app) as url, httpx.AsyncClient(timeout=30) as client:
        await slack.until(lambda: slack.faults.calls["auth.test"])
        for body in BODIES:
            headers = sign(slack.signing_secret, body) | {"content-type": "application/json"}
            answer = await client.post(url, content=body, headers=headers)
            assert answer.status_code in (200, 400, 404), (
                body[:100],
                answer.status_code,
                answer.text,
            )
            assert answer.status_code == 400 or body.startswith("{"), body[:100]
        assert await app.store.counts() == []
    assert "Traceback" not in caplog.text
