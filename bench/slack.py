"""Measure a mention from Slack to the reply, with a local Slack and the echo agent."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import pairwise

from bench.engine import Engine
from bench.latency import percentile
from bench.process import run_process
from bench.row import Goal, Row, compare_to_goal
from bench.scale import Scale
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.faults import Limit

PER_SECOND = 20
HALF, MOST = Goal(150.0, at_most=True), Goal(1000.0, at_most=True)
THREADS, EACH = 100, 10
LIMIT = Limit(most=50, seconds=1)
WAIT_SECONDS = 300.0


async def mention_to_reply(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    async with _working(engine) as slack:
        await slack.replies(await slack.mention("warm"))
        begun, roots = time.monotonic(), []
        for nth in range(scale.watched * PER_SECOND):
            await asyncio.sleep(begun + nth / PER_SECOND - time.monotonic())
            roots.append(await slack.mention("hello"))
        # By Slack's own timestamps, so that no polling distorts the times.
        found = [
            (float((await slack.replies(root))[0]["ts"]) - float(root)) * 1000 for root in roots
        ]
    for share, goal in ((0.5, HALF), (0.99, MOST)):
        what = f"mention to reply in Slack, p{share * 100:g} of {len(found):,}"
        yield compare_to_goal(goal, engine.name, what, percentile(found, share), "ms")


async def mention_burst(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    async with _working(engine) as slack:
        slack.faults.limits["chat.postMessage"] = LIMIT
        begun = time.monotonic()
        roots = [await slack.mention("0") for _ in range(THREADS)]
        for number in range(1, EACH):
            for root in roots:
                await slack.mention(str(number), thread_ts=root)
        await slack.until(lambda: len(slack.bot_messages(roots[-1])) == EACH, WAIT_SECONDS)
        for root in roots:
            await slack.until(partial(_is_answered, slack, root), WAIT_SECONDS)
        took = time.monotonic() - begun
        await asyncio.sleep(1)
        _check_replies(slack, roots)
    yield Row(
        store=engine.name,
        what=f"burst of {THREADS * EACH:,} mentions in {THREADS} threads, answered",
        measured=THREADS * EACH / took,
        against="Slack's limit",
        beside=LIMIT.most / LIMIT.seconds,
    )


def _is_answered(slack: FakeSlack, root: str) -> bool:
    return len(slack.bot_messages(root)) == EACH


def _check_replies(slack: FakeSlack, roots: list[str]) -> None:
    """Check that all were answered once and in order, with no request before Retry-After."""
    for root in roots:
        replies = slack.bot_messages(root)
        assert [reply["text"] for reply in replies] == [
            f"you said {number}" for number in range(EACH)
        ], replies
        assert all(one["ts"] < other["ts"] for one, other in pairwise(replies))
    assert slack.faults.impatient["chat.postMessage"] == 0, slack.faults.impatient


@asynccontextmanager
async def _working(engine: Engine) -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as slack:
        with engine.fresh() as url, _tokens(slack):
            working = run_process("work", url)
            await asyncio.to_thread(working.__enter__)
            try:
                await slack.until(lambda: slack.sockets.connections)
                yield slack
            finally:
                await asyncio.to_thread(working.__exit__, None, None, None)


@contextmanager
def _tokens(slack: FakeSlack) -> Iterator[None]:
    own = {
        "SLACK_BOT_TOKEN": slack.bot_token,
        "SLACK_APP_TOKEN": slack.app_token,
        "SLACK_API_URL": slack.api_url,
    }
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]
