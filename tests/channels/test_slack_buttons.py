"""Questions of turns in Slack: shown with buttons, and answered by pressing one."""

from __future__ import annotations

import pytest

from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.channels.slack.manifest import manifest
from holdfast.channels.slack.press import CLOSED, press_of
from holdfast.queue.audit import AuditFilter
from holdfast.settings import Settings, Slack
from holdfast.settings.channels import Channels
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.workspace import ADA, DIRECT, GENERAL
from tests.api.serving import serving
from tests.steps import both_engines, quick_harness, running

BOB = "U0BOB"


async def answer(turn: Turn) -> str:
    choices = {"Deploy": True, "Stop": False}
    first = await turn.signal("ok", prompt="Deploy **now**?", options=choices)
    again = await turn.signal("ok", prompt="Really?", options=["yes", "no"])
    return f"{first} and {again}"


def labels(message: dict[str, object]) -> list[str]:
    blocks = message.get("blocks")
    assert isinstance(blocks, list)
    elements = [one for block in blocks for one in block.get("elements", ())]
    return [one["text"]["text"] for one in elements]


@both_engines
async def test_a_turn_asks_with_buttons_in_its_thread(slack: FakeSlack, settings: Settings) -> None:
    async with running(quick_harness(answer), settings) as app:
        ts = await slack.mention("deploy")
        [asked] = await slack.replies(ts)
        assert (asked["text"], labels(asked)) == ("Deploy *now*?", ["Deploy", "Stop"])
        await slack.press_label(asked, "Deploy")
        [_, again] = await slack.replies(ts, count=2)
        await slack.until(lambda: not labels(asked))
        assert asked["text"] == f"Deploy *now*?\n*Deploy* – <@{ADA}>"
        assert asked["metadata"]["event_payload"]["key"], "the message can still be looked up"
        await slack.press_label(again, "yes")
        replies = await slack.replies(ts, count=3)
        assert replies[2]["text"] == "True and yes"
        entries = await app.store.audit_log(AuditFilter(action="signalled"))
        person = await app.store.pseudonym(f"{slack.workspace.team}:USER:slack:id:{ADA}")
        default = await app.store.pseudonym(f"default:USER:slack:id:{ADA}")
        assert {entry.actor for entry in entries} <= {f"slack:{person}", f"slack:{default}"}


async def test_a_press_elsewhere_by_others_or_too_late_does_nothing(
    slack: FakeSlack, settings: Settings
) -> None:
    slack.workspace.users[BOB] = "bob"
    channels = Channels(slack=(Slack(deny_users=(BOB,)),))
    denied = settings.model_copy(update={"channels": channels})
    async with running(quick_harness(answer), denied):
        ts = await slack.mention("deploy")
        [asked] = await slack.replies(ts)
        await slack.press_label(asked, "Stop", user=BOB)
        await slack.press_label(asked, "Stop", channel=DIRECT)
        for id in ("hf:1:0", "hf:999999:0", "hf:x", "ok"):
            await slack.press(slack.workspace.rooms[GENERAL], asked, {"action_id": id})
        await slack.until(lambda: len(slack.workspace.ephemeral) == 6)
        assert {text for _, _, text in slack.workspace.ephemeral} == {CLOSED}
        assert labels(asked) == ["Deploy", "Stop"]
        await slack.press_label(asked, "Deploy")
        assert len(await slack.replies(ts, count=2)) == 2


@pytest.fixture
def by_http(slack: FakeSlack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_APP_TOKEN")
    monkeypatch.setenv("SLACK_SIGNING_SECRET", slack.signing_secret)


@pytest.mark.usefixtures("by_http")
async def test_a_press_may_come_by_a_signed_request(slack: FakeSlack, settings: Settings) -> None:
    async with serving(AgentHarness(answer, settings=settings)) as port:
        slack.sockets.request_url = f"http://127.0.0.1:{port}/slack/events"
        ts = await slack.mention("deploy")
        [asked] = await slack.replies(ts)
        await slack.press_label(asked, "Stop")
        assert (await slack.replies(ts, count=2))[1]["text"] == "Really?"
        await slack.until(lambda: not labels(asked))


async def test_a_question_in_a_direct_message_is_answered_there(
    slack: FakeSlack, settings: Settings
) -> None:
    async with running(quick_harness(answer), settings):
        await slack.say_directly("deploy")
        room = slack.workspace.rooms[DIRECT]
        await slack.until(lambda: len(room.messages) == 2)
        await slack.press_label(room.messages[1], "Stop", channel=DIRECT)
        await slack.until(lambda: len(room.messages) == 3)
        assert room.messages[2]["text"] == "Really?"


@pytest.mark.parametrize("url", [None, "https://example.org/slack/events"])
def test_the_manifest_asks_for_presses(url: str | None) -> None:
    interactivity = manifest("bot", url)["settings"]["interactivity"]
    assert interactivity["is_enabled"]
    assert interactivity.get("request_url") == url


def test_other_interactions_are_no_presses() -> None:
    assert press_of({"type": "view_submission"}) is None
    assert press_of({"type": "block_actions", "actions": []}) is None
    assert press_of({"type": "block_actions", "actions": [{"action_id": "x"}]}) is None
