"""Programs that speak ACP, by the protocol's own library, as real processes."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentHarness, Dead, Done, Retry, Snooze
from holdfast.agents.acp import GO_ON, AcpAgent
from holdfast.agents.acp.prompt import Paragraphs
from holdfast.testing.harness import until
from holdfast.testing.trial import Trial, trial
from tests.agents.commands import Scripts
from tests.growth import superlinear

PROGRAM = Path(__file__).parent / "acp_agent.py"
WRITES_FIRST = """
import json, sys
for result in ({"protocolVersion": 1}, {"sessionId": "s"}):
    asked = json.loads(sys.stdin.readline())
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
while True:
    print("x" * 1000)
"""


def app_of(scripts: Scripts, *arguments: str, **options: Any) -> AgentHarness:
    policy = options.pop("policy", {})
    command = [sys.executable, "-P", str(PROGRAM), *arguments]
    folder = scripts.folder.parent
    agent = AcpAgent(
        command, folder / "workspace", folder / "sessions", variables=["MARK"], **options
    )
    app = AgentHarness()
    app.add("coder", agent, **policy)
    return app


def log(scripts: Scripts) -> list[str]:
    return (scripts.folder.parent / "workspace" / "log").read_text().splitlines()


async def outcome_of(app: AgentHarness, text: str) -> Any:
    async with trial(app) as attempt:
        await attempt.say(text)
        [(_, outcome)] = await attempt.work()
        return outcome


async def questions(attempt: Trial) -> list[str]:
    """Return the names of signals for which the message of the last turn waits."""
    journal = await attempt.store.journal(attempt.worked[-1][0].primary.id)
    return [
        step.signal
        for step in journal.steps.values()
        if step.state == "started" and step.signal is not None
    ]


async def choose(attempt: Trial, id: str, label: str) -> None:
    [name] = await questions(attempt)
    await attempt.app.signal(id, name, label)
    await attempt.work()


async def test_what_the_program_says_is_the_answer(scripts: Scripts) -> None:
    async with trial(app_of(scripts)) as attempt:
        assert await attempt.ask("say:one say:two") == "onetwo"
        assert await attempt.ask("nothing") == "(no answer)"
        assert await attempt.ask("say:half end:max_tokens") == "half\n\n(stopped: max_tokens)"
        assert await attempt.ask("end:refusal") == "(stopped: refusal)"


@pytest.mark.parametrize(("label", "id"), [("Allow", "a"), ("Reject", "r"), ("anything", "r")])
async def test_a_permission_is_asked_and_its_answer_given(
    scripts: Scripts, label: str, id: str
) -> None:
    async with trial(app_of(scripts)) as attempt:
        message = await attempt.say("say:first ask:push say:last")
        [(_, outcome)] = await attempt.work()
        assert isinstance(outcome, Snooze)
        assert log(scripts)[-2:] == ["cancel", "push cancelled"]
        assert scripts.left() == {}, "a waiting turn holds no process"
        await choose(attempt, message, label)
        [response] = await attempt.responses()
    did = "did pushlast" if label == "Allow" else "last"
    assert response.event["message"] == f"first\n\n{did}"
    assert f"push {id}" in log(scripts)


async def test_a_permission_that_nobody_gives_in_time_is_refused(scripts: Scripts) -> None:
    async with trial(app_of(scripts, approval=timedelta(hours=1))) as attempt:
        await attempt.say("ask:push say:last")
        await attempt.work()
        attempt.clock.tick(hours=2)
        await attempt.work()
        [response] = await attempt.responses()
    assert response.event["message"] == "last"
    assert log(scripts)[-1] == "push r"


async def test_a_loaded_session_goes_on_and_uses_each_permission_once(scripts: Scripts) -> None:
    text = "say:before ask:push ask:push"
    async with trial(app_of(scripts, "load")) as attempt:
        message = await attempt.say(text)
        await attempt.work()
        await choose(attempt, message, "Allow")
        assert log(scripts)[-3:] == ["push a", "cancel", "push cancelled"]
        # The program begins again: it has to ask again for what was permitted once.
        await choose(attempt, message, "Reject")
        assert log(scripts).count("push a") == 1
        assert "push r" in log(scripts)
    assert log(scripts)[0] == "new"
    assert log(scripts).count("new") == 1
    assert f"prompt {GO_ON + text!r}" in log(scripts)


async def test_the_text_before_a_question_is_kept(scripts: Scripts) -> None:
    async with trial(app_of(scripts, "load")) as attempt:
        message = await attempt.say("ask:push")
        await attempt.work()
        await choose(attempt, message, "Allow")
        [response] = await attempt.responses()
        assert response.event["message"] == "before\n\ndid push"
        assert await attempt.ask("say:fresh") == "fresh", "another message begins without it"


async def test_a_session_that_the_program_forgot_is_begun_anew(scripts: Scripts) -> None:
    async with trial(app_of(scripts, "load")) as attempt:
        await attempt.ask("say:one")
        (scripts.folder.parent / "workspace" / "log").unlink()
        assert await attempt.ask("say:two") == "two"
    assert log(scripts)[0] == "new"


@pytest.mark.parametrize(
    ("word", "error_class", "error"),
    [
        ("fail", "reported", "session/prompt: "),
        ("die", "exit", "ended with exit code 3: no disk"),
        ("flood", "flood", "more than 100000 bytes"),
    ],
)
async def test_a_failure_is_retried(
    scripts: Scripts, word: str, error_class: str, error: str
) -> None:
    outcome = await outcome_of(app_of(scripts, max_output=100_000), word)
    assert isinstance(outcome, Retry), outcome
    assert (outcome.error_class, error in str(outcome.error)) == (error_class, True), outcome
    assert scripts.left() == {}


async def test_a_program_that_writes_without_end_before_it_reads_is_noticed(
    scripts: Scripts,
) -> None:
    workspace, sessions = scripts.folder / "workspace", scripts.folder / "sessions"
    agent = AcpAgent([sys.executable, "-c", WRITES_FIRST], workspace, sessions, max_output=100_000)
    app = AgentHarness()
    app.add("coder", agent)
    async with asyncio.timeout(20):
        outcome = await outcome_of(app, "a long message " * 20_000)
    assert isinstance(outcome, Retry), outcome
    assert outcome.error_class == "flood"


def collect(pieces: list[str]) -> str:
    """Collect the text of a program piece by piece, with a paragraph now and then."""
    text = Paragraphs()
    for number, piece in enumerate(pieces):
        if number % 100 == 0:
            text.end_paragraph()
        text.add(piece)
    return text.text


def test_collecting_an_answer_takes_time_in_proportion_to_its_pieces() -> None:
    assert collect(["a", "b"] * 51) == "ab" * 50 + "\n\nab"
    assert not superlinear(collect, lambda size: ["a few words " * 8] * size)


async def test_a_program_that_hangs_is_told_to_cancel_and_ended(scripts: Scripts) -> None:
    path = scripts.folder.parent / "workspace" / "log"
    async with trial(app_of(scripts)) as attempt:
        await attempt.say("hang")
        work = asyncio.ensure_future(attempt.work())
        await until(lambda: path.exists() and "prompt 'hang'" in log(scripts))
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert log(scripts)[-1] == "cancel"
    assert scripts.left() == {}


@pytest.mark.parametrize(
    ("argument", "error"),
    [("login", "log in to"), ("newer", "speaks version 2 of ACP, not 1")],
)
async def test_a_program_that_cannot_work_is_a_dead_letter_at_once(
    scripts: Scripts, argument: str, error: str
) -> None:
    outcome = await outcome_of(app_of(scripts, argument), "say:one")
    assert isinstance(outcome, Dead)
    assert error in str(outcome.reason)


async def test_a_program_that_cannot_start_is_a_dead_letter(scripts: Scripts) -> None:
    folder = scripts.folder.parent
    app = AgentHarness()
    app.add("coder", AcpAgent(["/nowhere"], folder / "workspace", folder / "sessions"))
    outcome = await outcome_of(app, "say:one")
    assert isinstance(outcome, Dead)
    assert "/nowhere cannot be started" in str(outcome.reason)


async def test_greetings_on_the_output_are_skipped(scripts: Scripts) -> None:
    program = scripts.write(f"echo welcome; exec {sys.executable} -P {PROGRAM}")
    folder = scripts.folder.parent
    app = AgentHarness()
    app.add("coder", AcpAgent([program], folder / "workspace", folder / "sessions"))
    outcome = await outcome_of(app, "say:one")
    assert isinstance(outcome, Done)
    assert outcome.emits[0].event["message"] == "one"
