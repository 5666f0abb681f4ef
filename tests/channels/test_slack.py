"""Mentions and direct messages through the real slack-bolt and the fake Slack, on every store."""

from __future__ import annotations

from holdfast.agents.echo import echo
from holdfast.harness import AgentHarness
from holdfast.settings import Settings
from holdfast.testing.slack import FakeSlack
from tests.harness.steps import running


async def test_a_mention_is_answered_in_its_thread(slack: FakeSlack, settings: Settings) -> None:
    async with running(AgentHarness(echo), settings):
        ts = await slack.mention("hello")
        [reply] = await slack.replies(ts)
    assert (reply["text"], reply["thread_ts"]) == ("you said hello", ts)
