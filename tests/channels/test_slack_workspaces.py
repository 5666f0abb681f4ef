"""Several workspaces in one process; a refused one does not stop the others."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.agents.echo import echo
from holdfast.app import AgentHarness
from holdfast.channels.slack.errors import AccessDenied
from holdfast.queue.event import NewEvent
from holdfast.settings import Settings, Slack
from holdfast.settings.channels import Channels
from holdfast.testing.slack import FakeSlack
from tests.api.serving import ask_json, serving
from tests.cli.shell import Shell
from tests.steps import running

OTHER = Slack(bot_token_variable="OTHER_BOT_TOKEN", app_token_variable="OTHER_APP_TOKEN")
TWO = Channels(slack=(Slack(), OTHER))


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture(autouse=True)
def other_tokens(slack: FakeSlack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_BOT_TOKEN", slack.bot_token)
    monkeypatch.setenv("OTHER_APP_TOKEN", slack.app_token)


async def test_several_workspaces_each_answer_in_their_own(
    slack: FakeSlack, settings: Settings
) -> None:
    async with FakeSlack(team="T0OTHER") as other:
        tables = (Slack(), Slack(api_url=other.api_url))
        async with running(AgentHarness(echo), settings, channels=Channels(slack=tables)):
            here, there = await slack.mention("here"), await other.mention("there")
            assert [reply["text"] for reply in await slack.replies(here)] == ["you said here"]
            assert [reply["text"] for reply in await other.replies(there)] == ["you said there"]


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        (
            "OTHER_BOT_TOKEN",
            "xoxb-wrong",
            "OTHER_BOT_TOKEN: Slack does not let the bot in: invalid_auth",
        ),
        ("OTHER_BOT_TOKEN", "", "OTHER_BOT_TOKEN is not set"),
        ("OTHER_APP_TOKEN", "xapp-wrong", "OTHER_BOT_TOKEN: Slack does not open a socket"),
    ],
)
async def test_a_workspace_that_is_refused_is_named_and_the_others_work(
    slack: FakeSlack,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    value: str,
    problem: str,
) -> None:
    monkeypatch.setenv(variable, value)
    app = AgentHarness(echo, settings=settings.model_copy(update={"channels": TWO}))
    async with serving(app) as port:
        assert [reply["text"] for reply in await slack.replies(await slack.mention("hello"))] == [
            "you said hello"
        ]
        channel = app.channels["slack"]
        await slack.until(lambda: channel.problems)
        for path, word in (("/readyz", "ready"), ("/healthz", "ok")):
            status, answer = await ask_json(port, path)
            assert (status, answer["status"]) == (200, word)
            assert answer["slack"].startswith(problem)
    assert len([line for line in caplog.messages if problem in line]) == 1


async def test_responses_to_a_refused_workspace_wait_without_an_attempt(
    slack: FakeSlack, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_BOT_TOKEN", "xoxb-wrong")
    payload = {
        "kind": "response",
        "channel": "slack",
        "conversation": "slack:T0OTHER:C0OTHER:1.2",
        "message": "hi",
    }
    app = AgentHarness(echo)
    async with running(app, settings, channels=TWO):
        [id_] = await app.store.put([NewEvent(event=payload, queue="outbox", target="slack")])
        await slack.until(lambda: slack.faults.calls["conversations.info"])
        await slack.replies(await slack.mention("hello"))
        assert id_ is not None
        event = await app.store.live(id_)
    assert event is not None
    assert event.attempts == 0


async def test_when_none_lets_us_in_all_are_named_and_nothing_runs(
    slack: FakeSlack, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-wrong")
    monkeypatch.setenv("OTHER_BOT_TOKEN", "")
    app = AgentHarness(echo, settings=settings.model_copy(update={"channels": TWO}))
    with pytest.raises(ExceptionGroup) as refused:
        await app.run()
    error_text = str(_first(refused.value))
    assert "SLACK_BOT_TOKEN: Slack does not let the bot in: invalid_auth" in error_text
    assert "OTHER_BOT_TOKEN is not set" in error_text


async def test_doctor_names_each_workspace_by_its_variable(slack: FakeSlack, shell: Shell) -> None:
    tables = '[[channels.slack]]\n[[channels.slack]]\nbot_token_variable = "OTHER_BOT_TOKEN"\n'
    config = str(shell.write("two.toml", tables))
    done = await asyncio.to_thread(
        shell.run, "doctor", "--config", config, OTHER_BOT_TOKEN="xoxb-wrong"
    )
    assert done.returncode == 1
    assert "ok    Slack (SLACK_BOT_TOKEN): the bot is holdfast in Fake" in done.stdout
    assert "fail  Slack (OTHER_BOT_TOKEN): Slack says invalid_auth" in done.stdout


async def test_doctor_misses_the_bot_token_beside_an_app_token(shell: Shell) -> None:
    done = await asyncio.to_thread(shell.run, "doctor", SLACK_BOT_TOKEN="")
    assert done.returncode == 1
    assert (
        "fail  Slack: SLACK_APP_TOKEN set without SLACK_BOT_TOKEN, so Slack is off" in done.stdout
    )


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, AccessDenied)
    return error


@pytest.fixture
def shell(settings: Settings) -> Shell:
    return Shell(settings.home)
