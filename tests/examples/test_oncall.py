"""The on-call helper in a local Slack, worked by real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.harness import until
from holdfast.testing.slack import FakeSlack
from tests.cli.shell import Shell
from tests.examples.conftest import Start

EXAMPLE = "oncall"
WORK = ("work", "--app", "oncall:app")

# The restart does its work, and then hangs: the moment in which the worker is killed.
TRACED = """
[web]
title = "The web service does not answer"
words = ["web"]

[[web.steps]]
name = "look"
run = "echo look >> trace"

[[web.steps]]
name = "restart"
run = "echo restart >> trace; sleep 4"
change.ask = "Restart?"
change.done = "grep -q restart trace"

[[web.steps]]
name = "check"
run = "echo check >> trace"
"""


def tokens(slack: FakeSlack) -> dict[str, str]:
    return {
        "SLACK_BOT_TOKEN": slack.bot_token,
        "SLACK_APP_TOKEN": slack.app_token,
        "SLACK_API_URL": slack.api_url,
    }


async def test_an_alert_is_worked_after_somebody_approved(start: Start, shell: Shell) -> None:
    async with FakeSlack() as slack, start(*WORK, **tokens(slack)):
        ts = await slack.mention("web is down")
        [question] = await slack.replies(ts)
        assert "2. count the errors: `2`" in question["text"]
        assert question["text"].endswith("*Restart the web service? Its users are logged out.*")
        assert "restarted" not in (shell.folder / "web.log").read_text()
        await slack.press_label(question, "Do it")
        [_, report] = await slack.replies(ts, count=2)
        assert report["text"].splitlines()[-3:] == [
            "3. restart the service: ok",
            "4. check that it answers: `restarted`",
            "All steps are done.",
        ]
    [mark] = [line for line in lines(shell.folder / "web.log") if "restarted" in line]
    assert mark.startswith("slack_")


async def test_nothing_is_changed_if_somebody_says_stop(start: Start, shell: Shell) -> None:
    async with FakeSlack() as slack, start(*WORK, **tokens(slack)):
        ts = await slack.mention("web is down")
        [question] = await slack.replies(ts)
        await slack.press_label(question, "Stop here")
        [_, report] = await slack.replies(ts, count=2)
        assert report["text"].endswith("3. restart the service: not done, somebody chose to stop")
        unknown = await slack.mention("the coffee machine is broken")
        [answer] = await slack.replies(unknown)
        assert answer["text"].startswith("There is no runbook for this.")
    assert "restarted" not in (shell.folder / "web.log").read_text()


@pytest.mark.parametrize("moment", ["while people are asked", "after the change"])
async def test_a_kill_repeats_no_step(start: Start, shell: Shell, moment: str) -> None:
    shell.write("runbooks.toml", TRACED)
    trace = shell.folder / "trace"
    async with FakeSlack() as slack:
        async with start(*WORK, **tokens(slack)):
            ts = await slack.mention("web is down")
            [question] = await slack.replies(ts)
            if moment == "after the change":
                await slack.press_label(question, "Do it")
                await until(lambda: lines(trace) == ["look", "restart"])
        async with start(*WORK, **tokens(slack)):
            if moment == "while people are asked":
                await slack.until(lambda: slack.sockets.connections == 1)
                await slack.press_label(question, "Do it")
            [_, report] = await slack.replies(ts, count=2)
            result = "ok" if moment == "while people are asked" else "done before the worker"
            assert f"2. restart: {result}" in report["text"]
    assert lines(trace) == ["look", "restart", "check"]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
