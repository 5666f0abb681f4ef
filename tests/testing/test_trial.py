"""A user's own tests: an agent tried step by step, without processes and without waiting."""

from __future__ import annotations

from datetime import timedelta

from holdfast import AgentHarness, Dead, Done, NewEvent, Reply, Retry, Snooze, Turn
from holdfast.router import Address
from holdfast.testing.trial import trial


async def test_an_answer_is_seen_with_what_was_emitted() -> None:
    app = AgentHarness(default="coder")

    @app.agent("coder")
    async def coder(turn: Turn) -> Reply:
        turn.emit(NewEvent(queue="audit", event={"text": turn.text}))
        return Reply(f"you said {turn.text}", metadata={"mood": "good"})

    async with trial(app) as attempt:
        message_id = await attempt.say("hello")
        [(turn, outcome)] = await attempt.work()
        assert (turn.text, turn.attempt, turn.message_id, turn.agent) == ("hello", 1, message_id, "coder")
        assert isinstance(outcome, Done)
        assert [emit.queue for emit in outcome.emits] == ["outbox", "audit"]
        [response] = await attempt.responses()
        assert response.event["message"] == "you said hello"
        assert response.event["metadata"] == {"mood": "good"}


async def test_a_failure_is_tried_again_when_the_clock_says_so() -> None:
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


async def test_snoozes_and_dead_letters_are_values_too() -> None:
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
