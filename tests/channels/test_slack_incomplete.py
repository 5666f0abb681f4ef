"""An incomplete set-up of Slack is reported, and a stop leaves no tasks behind."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from holdfast.agents.echo import echo
from holdfast.app import AgentHarness
from holdfast.channels.slack import SlackChannel
from holdfast.channels.slack.access import Access
from holdfast.channels.slack.workspace import Workspace
from holdfast.cli.doctor import _channels
from holdfast.message import Payload
from holdfast.settings import Settings
from holdfast.testing.slack import FakeSlack
from tests.api.serving import ask_json, serving
from tests.channels.platforms import slack_channel
from tests.steps import QUICK


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.mark.parametrize("alone", ["SLACK_APP_TOKEN", "SLACK_BOT_TOKEN"])
async def test_a_bot_token_alone_is_reported_at_start_by_readyz_and_by_doctor(
    slack: FakeSlack,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    alone: str,
) -> None:
    for name in {"SLACK_APP_TOKEN", "SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET"} - {alone}:
        monkeypatch.delenv(name, raising=False)
    async with serving(AgentHarness(echo, settings=settings)) as port:
        status, answer = await ask_json(port, "/readyz")
        assert (status, answer["status"]) == (200, "ready")
        assert answer["slack"].startswith(alone)
    log_lines = [
        line
        for line in caplog.messages
        if "a channel is only partly configured" in line and alone in line
    ]
    assert len(log_lines) == 1
    assert [record.levelno for record in caplog.records if "partly" in record.getMessage()] == [
        logging.WARNING
    ]
    findings = await asyncio.to_thread(lambda: list(_channels(settings)))
    assert any(
        finding.state in ("warn", "fail") and "SLACK_BOT_TOKEN" in finding.detail
        for finding in findings
    )


async def test_both_tokens_together_tell_nothing(
    slack: FakeSlack, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(AgentHarness(echo, settings=settings)) as port:
        assert await ask_json(port, "/readyz") == (200, {"status": "ready"})
    assert "partly" not in caplog.text


async def test_an_outage_of_slack_is_logged_once_with_the_reason(
    slack: FakeSlack,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    requests = 0
    request = Workspace._request

    async def away(workspace: Workspace, method: str, arguments: Payload) -> Payload:
        nonlocal requests
        requests += 1
        if requests < 6:
            workspace.client.base_url = "http://127.0.0.1:1/"
        else:
            workspace.client.base_url = slack.api_url
        return await request(workspace, method, arguments)

    monkeypatch.setattr(Workspace, "_request", away)
    app = AgentHarness(echo, settings=settings)
    app.add_channel(slack_channel(settings, sign_in_backoff=QUICK))
    async with serving(app):
        pass
    log_lines = [line for line in caplog.messages if "could not sign in to Slack" in line]
    assert len(log_lines) == 1
    assert "out of reach" in log_lines[0]
    assert "127.0.0.1:1" in log_lines[0]
    assert len([line for line in caplog.messages if "Slack is reachable again" in line]) == 1


@pytest.mark.parametrize("again", [True, False])
async def test_a_group_cancelled_during_a_slack_turn_leaves_no_coroutine_behind(
    again: bool,
) -> None:
    channel = SlackChannel([Access(bot_token="xoxb-1", app_token="xapp-1")])
    begun = asyncio.Event()

    async def turn() -> None:
        async with channel.show_typing({"channel": "C1", "ts": "1.2"}, again=again):
            begun.set()
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as ended:
        await _cancelled(channel, turn, begun)
    assert [type(error) for error in ended.value.exceptions] == [ValueError]
    # Warnings are errors here, also those about coroutines that nobody awaited.
    gc.collect()


async def _cancelled(channel: SlackChannel, turn: object, begun: asyncio.Event) -> None:
    async with channel._background.open() as group:
        group.create_task(turn())  # type: ignore[operator]
        await begun.wait()
        raise ValueError("the group ends")
