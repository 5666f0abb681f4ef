"""Members of a team post under their own names and icons, where the scopes of the app allow it."""

from __future__ import annotations

import logging

import pytest

from holdfast.agents.base import policy_of
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.channels.base import Line
from holdfast.channels.slack.manifest import CUSTOMIZE_SCOPE, manifest
from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.testing.slack import FakeSlack
from tests.steps import running

SHOWN = ("username", "icons")


def team() -> AgentHarness:
    app = AgentHarness(default="lead")

    @app.agent("lead", name="Lead", icon=":memo:")
    async def lead(turn: Turn) -> str:
        return "I ask. [@coder: write it]"

    @app.agent("coder", icon="https://example.org/coder.png")
    async def coder(turn: Turn) -> str:
        return "written"

    app.team("dev", agents=["lead", "coder"], leader="lead")
    return app


async def test_members_of_a_team_have_their_own_name_and_icon(
    slack: FakeSlack, settings: Settings
) -> None:
    async with running(team(), settings):
        replies = await slack.replies(await slack.mention("hello"), count=2)
    assert {reply["text"]: [reply.get(key) for key in SHOWN] for reply in replies} == {
        "I ask.": ["Lead", {"emoji": ":memo:"}],
        "written": ["coder", {"image_64": "https://example.org/coder.png"}],
    }


async def test_an_agent_without_a_team_speaks_as_the_bot(
    slack: FakeSlack, settings: Settings
) -> None:
    app = AgentHarness()
    app.add("coder", lambda turn: "written", name="Coder", icon=":memo:")
    async with running(app, settings):
        [reply] = await slack.replies(await slack.mention("hello"))
    assert [reply.get(key) for key in SHOWN] == [None, None]


async def test_without_the_scope_members_speak_as_the_bot_and_one_line_says_so(
    slack: FakeSlack, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    slack.workspace.scopes.remove(CUSTOMIZE_SCOPE)
    async with running(team(), settings):
        replies = await slack.replies(await slack.mention("hello"), count=2)
        replies += await slack.replies(await slack.mention("again"), count=2)
    assert sorted(reply["text"] for reply in replies) == ["I ask.", "I ask.", "written", "written"]
    assert [reply.get("username") for reply in replies] == [None] * 4
    lines = [record for record in caplog.records if CUSTOMIZE_SCOPE in record.getMessage()]
    assert len(lines) == 1


async def test_the_thread_names_the_member_who_wrote_a_line(
    slack: FakeSlack, settings: Settings
) -> None:
    lines: list[Line] = []
    app = team()

    @app.agent("reader")
    async def reader(turn: Turn) -> str:
        lines.extend(await turn.thread())
        return "read"

    async with running(app, settings):
        ts = await slack.mention("hello")
        await slack.replies(ts, count=2)
        await slack.mention("@reader what was said?", thread_ts=ts)
        await slack.replies(ts, count=3)
    assert {(line.sender, line.is_own) for line in lines} == {
        ("ada", False),
        ("Lead", True),
        ("coder", True),
    }
    assert slack.faults.calls["conversations.info"] == 0


def test_the_manifest_asks_for_the_scope() -> None:
    assert CUSTOMIZE_SCOPE in manifest("x")["oauth_config"]["scopes"]["bot"]


@pytest.mark.parametrize("icon", ["robot", "http://example.org/a.png", ":no emoji:", ""])
def test_an_icon_that_is_neither_emoji_nor_address_is_refused(icon: str) -> None:
    with pytest.raises(HoldfastError, match="agent 'coder': icon"):
        policy_of("coder", {"icon": icon}, {})
