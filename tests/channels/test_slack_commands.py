"""`holdfast slack manifest`, `holdfast demo slack`, and the Slack checks of doctor."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from holdfast.channels.slack.access import Access
from holdfast.channels.slack.check import check
from holdfast.testing.slack import FakeSlack
from tests.cli.shell import Shell, eventually


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_manifest_asks_for_socket_mode_unless_events_come_by_http(alone: Shell) -> None:
    socket = json.loads(alone.out("slack", "manifest", "--name", "helper"))
    assert socket["settings"]["socket_mode_enabled"]
    assert socket["features"]["bot_user"]["display_name"] == "helper"
    assert "app_mention" in socket["settings"]["event_subscriptions"]["bot_events"]
    http = json.loads(alone.out("slack", "manifest", "--request-url", "https://h/slack/events"))
    assert not http["settings"]["socket_mode_enabled"]
    assert http["settings"]["event_subscriptions"]["request_url"] == "https://h/slack/events"
    assert "https" in alone.refused("slack", "manifest", "--request-url", "http://h")


def ask(address: str, path: str, body: Any = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, headers)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def thread_messages(address: str) -> list[Any]:
    """A mention and its answer, once they are there."""
    messages: list[Any] = ask(address, "chat/rooms")["rooms"][0]["messages"]
    return messages if len(messages) == 2 else []


def test_the_demo_answers_a_mention_without_an_account(alone: Shell) -> None:
    with alone.running("demo", "slack", "--port", "0") as demo:
        address = demo.ready.split()[-1]
        assert address.startswith("http://127.0.0.1:")
        ask(address, "chat/say", {"text": "@holdfast hello", "channel": "C0GENERAL"})
        [root, reply] = eventually(lambda: thread_messages(address))
        assert (reply["text"], reply["thread_ts"]) == ("you said hello", root["ts"])
        for foreign in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                ask(address, "chat/rooms", **foreign)


def test_the_page_of_the_demo_runs_nothing_but_its_own_script(alone: Shell) -> None:
    with (
        alone.running("demo", "slack", "--port", "0") as demo,
        urllib.request.urlopen(demo.ready.split()[-1]) as page,
    ):
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        text = page.read().decode()
        assert "://" not in text
        assert " on" not in text.replace(" on ", "")


async def test_doctor_asks_slack_for_tokens_scopes_and_a_socket(slack: FakeSlack) -> None:
    good = Access(bot_token=slack.bot_token, app_token=slack.app_token, api_url=slack.api_url)
    assert [state for _, state, _ in await check(good)] == ["ok", "ok", "ok"]
    [line] = await check(Access(bot_token="xoxb-wrong", api_url=slack.api_url))
    assert line == ("Slack", "fail", "Slack says invalid_auth")
    wrong_socket = Access(bot_token=slack.bot_token, app_token="xapp-wrong", api_url=slack.api_url)
    assert (await check(wrong_socket))[-1] == ("Slack socket", "fail", "Slack says invalid_auth")
    silent = Access(bot_token=slack.bot_token, api_url=slack.api_url)
    assert (await check(silent))[-1][1] == "warn"


async def test_a_wrong_bot_token_is_one_line_and_exit_code_1(
    slack: FakeSlack, alone: Shell
) -> None:
    tokens = {"SLACK_BOT_TOKEN": "xoxb-hunter2", "SLACK_API_URL": slack.api_url}
    done = await asyncio.to_thread(alone.run, "work", **tokens)
    # It may say "ready" before or not: it does not wait long for the answer of Slack.
    assert done.returncode == 1
    # A slow machine may log further lines, such as one about a blocked event loop.
    [line] = [line for line in done.stderr.splitlines() if "Slack" in line]
    assert "Slack does not let the bot in: invalid_auth" in line
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr
