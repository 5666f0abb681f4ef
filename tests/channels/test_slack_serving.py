"""`serve` stores signed events of Slack, and `work` in another process answers them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.store import open_store
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import TEAM
from tests.cli.shell import Shell
from tests.steps import both_engines, finished

T = TypeVar("T")

AGENTS = """
default = "helper"

[agents.helper]
kind = "echo"
"""


@pytest.fixture
def shell(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, slack: FakeSlack
) -> Shell:
    monkeypatch.delenv("SLACK_APP_TOKEN")
    monkeypatch.setenv("SLACK_SIGNING_SECRET", slack.signing_secret)
    return Shell(tmp_path, database_url)


@both_engines
async def test_a_signed_mention_is_stored_by_serve_and_answered_once_by_work(
    slack: FakeSlack, shell: Shell, database_url: str
) -> None:
    slack.faults.lose_acks = 2
    slack.sockets.ack_within = 3.0
    config = str(shell.write("agents.toml", AGENTS))
    with (
        shell.running("work", "--config", config) as work,
        shell.running("serve", "--port", "0") as serve,
    ):
        assert "ready" in await asyncio.to_thread(lambda: work.ready)
        slack.sockets.request_url = f"{serve.address}/slack/events"
        ts = await slack.mention("hello")
        assert [reply["text"] for reply in await slack.replies(ts)] == ["you said hello"]
        await slack.until(lambda: slack.sockets.acked)
        async with open_store(database_url) as store:
            await finished(store, queue="outbox")
            [event] = await finished(store, queue="inbox")
    assert len(slack.bot_messages(ts)) == 1
    # The agents are those of the process that works.
    assert event.lane == f"helper/slack:{TEAM}:C0GENERAL:{ts}"


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_serve_without_work_stores_and_acknowledges(
    slack: FakeSlack, shell: Shell, database_url: str
) -> None:
    with shell.running("serve", "--port", "0") as serve:
        slack.sockets.request_url = f"{serve.address}/slack/events"
        ts = await slack.mention("hello")
        await slack.until(lambda: slack.sockets.acked)
        async with open_store(database_url) as store:
            [count] = await store.counts()
    assert (count.queue, count.ready) == ("inbox", 1)
    assert slack.bot_messages(ts) == []
