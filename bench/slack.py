"""Measure the time from a mention in Slack to the first text of an answer that grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from bench.apps import LAST_WORD
from bench.engine import Engine
from bench.first_token import FLUSH
from bench.latency import percentile
from bench.mentions import environment
from bench.process import run_process
from bench.row import Row
from bench.scale import Scale
from holdfast.testing.crowds.slack import SlackCrowd
from holdfast.testing.slack import FakeSlack

STREAMED = 20
"""Answers of which the first text is timed. Slack allows 50 edits a minute."""
WAIT_SECONDS = 300.0


async def first_token(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    """Time the first text of a streamed answer: an answer is one message, edited as it grows."""
    times = []
    async with _working(engine, "--app", "bench.apps:streaming") as slack:
        for nth in range(min(scale.watched, STREAMED) + 1):
            root = await slack.mention(f"question {nth}")
            [message] = await slack.replies(root)
            times.append((float(message["ts"]) - float(root)) * 1000)
            await slack.until(partial(_is_complete, slack, root), WAIT_SECONDS)
    # The first one warms the worker up.
    yield Row(
        store=engine.name,
        what=f"first text in Slack, p50 of {len(times) - 1}",
        measured=percentile(times[1:], 0.5),
        against="one flush",
        beside=FLUSH,
        unit="ms",
    )


def _is_complete(slack: FakeSlack, root: str) -> bool:
    text: str = slack.bot_messages(root)[0]["text"]
    return text.strip().endswith(LAST_WORD)


@asynccontextmanager
async def _working(engine: Engine, *options: str) -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as slack:
        with engine.fresh() as url, environment(SlackCrowd(slack).variables):
            working = run_process("work", url, *options)
            await asyncio.to_thread(working.__enter__)
            try:
                await slack.until(lambda: slack.sockets.connections)
                yield slack
            finally:
                await asyncio.to_thread(working.__exit__, None, None, None)
