"""Other bots in Slack: ignored unless allowed, and stopped when they talk without a person."""

from __future__ import annotations

from holdfast.agents.echo import echo
from holdfast.settings import Settings, Slack
from holdfast.settings.channels import Channels
from holdfast.store.bot_counts import MOST_ANSWERS
from holdfast.testing.slack import FakeSlack
from tests.steps import both_engines, quick_harness, running

pytestmark = both_engines


async def test_bots_that_answer_each_other_are_stopped_until_a_person_writes(
    slack: FakeSlack, settings: Settings
) -> None:
    allowed = settings.model_copy(update={"channels": Channels(slack=(Slack(bots=True),))})
    async with running(quick_harness(echo), allowed):
        root = await slack.mention("hello")
        await slack.replies(root)
        for number in range(MOST_ANSWERS + 5):
            await slack.mention(str(number), bot_id="B0OTHER", thread_ts=root)
        await slack.until(lambda: len(slack.sockets.acked) == MOST_ANSWERS + 6)
        await slack.mention("stop", thread_ts=root)
        replies = await slack.replies(root, count=MOST_ANSWERS + 2)
    assert len(replies) == MOST_ANSWERS + 2
    assert replies[-1]["text"] == "you said stop"
