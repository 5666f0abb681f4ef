"""A minimal server at SLACK_API_URL instead of Slack: one answer, in the thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from holdfast.agents.turn import Turn
from holdfast.channels.slack.access import Access
from holdfast.channels.slack.check import check
from holdfast.queue.event import FinishedEvent
from holdfast.settings import Settings, Slack
from holdfast.settings.channels import Channels
from tests.channels.bare import CHANNEL, FULL, TERSE, TS, UNKNOWN, BareSlack
from tests.steps import finished, quick_harness, running


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest_asyncio.fixture
async def bare(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[BareSlack]:
    async with BareSlack(getattr(request, "param", FULL)) as bare:
        monkeypatch.setenv("SLACK_API_URL", bare.api_url)
        yield bare


async def ended_response(settings: Settings, bare: BareSlack) -> FinishedEvent:
    """Answer one mention with an agent that uses all that Slack offers. Returns the response."""

    async def answer(turn: Turn) -> str:
        await bare.acked.wait()
        await asyncio.sleep(0.05)
        return f"you said {turn.text}"

    app = quick_harness(answer)
    status = Channels(slack=(Slack(status_after=timedelta(0)),))
    async with running(app, settings, channels=status):
        [ended] = await finished(app.store, queue="outbox")
    return ended


@pytest.mark.parametrize("bare", [FULL, TERSE], ids=["told who it is", "not told"], indirect=True)
async def test_a_mention_is_answered_where_slack_can_do_next_to_nothing(
    bare: BareSlack, settings: Settings
) -> None:
    ended = await ended_response(settings, bare)
    assert (ended.outcome, ended.attempts) == ("completed", 1)
    [post] = bare.posted
    assert (post["channel"], post["thread_ts"], post["text"]) == (
        CHANNEL,
        TS,
        "you said ask <@U1EVE>",
    )
    assert bare.calls["reactions.add"] == 1


@pytest.mark.parametrize("method", ["users.info", "reactions.add", "reactions.remove"])
async def test_an_answer_without_fields_is_taken_as_it_is(
    bare: BareSlack, settings: Settings, method: str
) -> None:
    bare.answers[method] = TERSE
    await ended_response(settings, bare)
    assert [post["text"] for post in bare.posted] == ["you said ask <@U1EVE>"]


async def test_a_part_is_found_by_its_words_where_no_metadata_comes_back(
    bare: BareSlack, settings: Settings
) -> None:
    bare.refuse_after_posting = 1
    bare.has_replies(text="you said ask <@U1EVE>")
    ended = await ended_response(settings, bare)
    assert (ended.outcome, len(bare.posted)) == ("completed", 1)


@pytest.mark.parametrize(
    "thread", [None, UNKNOWN, TERSE, {"ok": True, "messages": [{"text": "you said else"}]}]
)
async def test_a_part_that_cannot_be_looked_up_is_sent_again_rather_than_lost(
    bare: BareSlack, settings: Settings, thread: dict[str, Any] | None
) -> None:
    bare.refuse_after_posting = 1
    if thread is not None:
        bare.answers["conversations.replies"] = thread
    ended = await ended_response(settings, bare)
    assert (ended.outcome, len(bare.posted)) == ("completed", 2)


async def test_doctor_warns_that_such_a_slack_lists_no_scopes(bare: BareSlack) -> None:
    lines = await check(Access(bot_token="xoxb-bare", app_token="xapp-bare", api_url=bare.api_url))
    assert [(name, state) for name, state, _ in lines] == [
        ("Slack", "ok"),
        ("Slack scopes", "warn"),
        ("Slack socket", "ok"),
    ]


async def test_an_agent_may_ask_for_a_thread_that_slack_does_not_tell(
    bare: BareSlack, settings: Settings
) -> None:
    bare.mention["thread_ts"] = "1600000000.000100"
    lines: list[object] = []

    async def answer(turn: Turn) -> str:
        lines.extend(await turn.thread())
        lines.extend(await turn.files())
        return "read"

    app = quick_harness(answer)
    async with running(app, settings):
        await finished(app.store, queue="outbox")
    assert ([post["text"] for post in bare.posted], lines) == (["read"], [])
    assert bare.calls["conversations.replies"] == 1
