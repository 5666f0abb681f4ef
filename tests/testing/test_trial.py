"""Trials: users test an agent step by step, without processes and without waiting."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import AgentHarness, Dead, Done, NewEvent, Reply, Retry, Snooze, Turn
from holdfast.errors import HoldfastError
from holdfast.routing.router import Address
from holdfast.testing.trial import trial


async def test_a_trial_shows_the_answer_and_emitted_events() -> None:
    app = AgentHarness(default="coder")

    @app.agent("coder")
    async def coder(turn: Turn) -> Reply:
        turn.emit(NewEvent(queue="audit", event={"text": turn.text}))
        return Reply(f"you said {turn.text}", metadata={"mood": "good"})

    async with trial(app) as attempt:
        message_id = await attempt.say("hello")
        [(turn, outcome)] = await attempt.work()
        assert (turn.text, turn.attempt, turn.message_id, turn.agent) == (
            "hello",
            1,
            message_id,
            "coder",
        )
        assert isinstance(outcome, Done)
        assert [emit.queue for emit in outcome.emits] == ["outbox", "audit"]
        [response] = await attempt.responses()
        assert response.event["message"] == "you said hello"
        assert response.event["metadata"] == {"mood": "good"}


async def test_a_failure_is_retried_when_the_clock_reaches_it() -> None:
    app = AgentHarness()

    @app.agent("flaky")
    async def flaky(turn: Turn) -> str:
        if turn.attempt == 1:
            raise RuntimeError("not yet")
        return "now"

    async with trial(app) as attempt:
        await attempt.say("go")
        [(_, outcome)] = await attempt.work()
        assert isinstance(outcome, Retry)
        assert outcome.error == "RuntimeError: not yet"
        assert await attempt.work() == []
        attempt.clock.tick(minutes=1)
        assert [type(outcome) for _, outcome in await attempt.work()] == [Done]
        assert [response.event["message"] for response in await attempt.responses()] == ["now"]


async def test_snoozes_and_dead_letters_are_outcomes() -> None:
    app = AgentHarness()

    @app.agent("moody")
    async def moody(turn: Turn) -> Snooze | Dead:
        return Snooze(timedelta(hours=1)) if turn.text == "later" else Dead("never")

    async with trial(app) as attempt:
        await attempt.say("later", agent="moody")
        assert [outcome for _, outcome in await attempt.work()] == [Snooze(timedelta(hours=1))]
        attempt.clock.tick(hours=1)
        [(turn, _)] = await attempt.work()
        assert turn.attempt == 1
        await attempt.say("no", agent="MOODY", address=Address(sender="Bob"))
        await attempt.work()
        assert await attempt.dead_letters() == ["never"]


async def test_ask_returns_the_answer() -> None:
    app = AgentHarness()

    @app.agent("echo")
    async def echo(turn: Turn) -> str:
        return f"you said {turn.text}"

    async with trial(app) as attempt:
        assert await attempt.ask("hi") == "you said hi"
        assert await attempt.ask("@echo again") == "you said again"


async def test_ask_joins_the_answers_of_a_team() -> None:
    app = AgentHarness()

    @app.agent("lead")
    async def lead(turn: Turn) -> str:
        return "on it [@mate: look]"

    @app.agent("mate")
    async def mate(turn: Turn) -> str:
        return "done"

    app.team("dev", agents=["lead", "mate"], leader="lead")
    async with trial(app) as attempt:
        first, last = (await attempt.ask("@dev go")).split("\n\n")
        assert first.startswith("on it")
        assert last == "done"


async def test_ask_remembers() -> None:
    app = AgentHarness()

    @app.agent("friend", memory=True)
    async def friend(turn: Turn) -> str:
        if turn.text.startswith("remember "):
            turn.memory.observe(turn.text.removeprefix("remember "))
            return "noted"
        return "\n".join(turn.memory.relevant) or "I do not know yet"

    async with trial(app) as attempt:
        assert await attempt.ask("what do I drink?", sender="ann") == "I do not know yet"
        assert await attempt.ask("remember I drink green tea", sender="ann") == "noted"
        assert await attempt.ask("what do I drink?", sender="ann") == "I drink green tea"
        assert await attempt.ask("what do I drink?", sender="bob") == "I do not know yet"


async def test_ask_says_why_there_is_no_answer() -> None:
    app = AgentHarness()

    @app.agent("moody")
    async def moody(turn: Turn) -> Dead:
        return Dead("never")

    async with trial(app) as attempt:
        with pytest.raises(HoldfastError, match=r"no answer to api_\w+: .*never"):
            await attempt.ask("please")
