"""Many answers that grow at once: all processes together stay within Slack's limit of edits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.channels.budget import EDITS_PER_MINUTE
from holdfast.testing.faults import Limit
from holdfast.testing.slack import FakeSlack
from tests.crash.streamer import answer_text
from tests.crash.test_streaming import worker

MENTIONS = 24
"""Each answer grows for a second, with an edit every 100 ms: far more edits than are allowed."""


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
async def test_the_growing_answers_of_two_processes_stay_within_the_limit(
    slack: FakeSlack, database_url: str, tmp_path: Path
) -> None:
    slack.faults.limits["chat.update"] = Limit(EDITS_PER_MINUTE, seconds=60)
    async with asyncio.timeout(60), worker(database_url, tmp_path), worker(database_url, tmp_path):
        threads = [await slack.mention(f"report {number}") for number in range(MENTIONS)]
        whole = [[answer_text()]] * MENTIONS
        await slack.until(lambda: [_texts(slack, ts) for ts in threads] == whole)
    # At least half of the budget is used: without any edits the limit would be kept, too.
    assert EDITS_PER_MINUTE / 2 <= slack.faults.calls["chat.update"] <= EDITS_PER_MINUTE
    assert slack.faults.refused["chat.update"] == 0


def _texts(slack: FakeSlack, ts: str) -> list[str]:
    return [reply["text"] for reply in slack.bot_messages(ts)]
