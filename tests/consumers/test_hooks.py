"""Hooks of a user change messages before the agent and replies before storage."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.agents.base import Answer, Reply
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.message import text_of
from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Dead, Done, Snooze
from holdfast.settings import Settings
from tests.consumers.test_answers import QUICKLY
from tests.queue.test_consumer import Gate
from tests.steps import AT_ONCE, NEVER, both_engines, finished, running, until


def echoing() -> AgentHarness:
    return AgentHarness(lambda turn: f"heard {turn.text}")


@both_engines
async def test_a_message_is_changed_for_its_agent_and_kept_as_it_was_written(
    settings: Settings,
) -> None:
    app = echoing()

    @app.incoming
    def shout(turn: Turn) -> str:
        return turn.text.upper()

    @app.incoming
    async def greet(turn: Turn) -> str:
        await asyncio.sleep(0)
        return f"{turn.text} from {turn.sender} to {turn.agent}"

    async with running(app, settings):
        await app.put("hi", sender="Ada")
        [ended] = await finished(app.store, queue="inbox")
        [response] = await app.responses("api")
        lines = await app.store.agent_messages("agent")
    assert response.event["message"] == "heard HI from Ada to agent"
    assert response.event["original_message"] == ended.event["message"] == "hi"
    assert [line.content for line in lines[::-1]] == ["hi", "heard HI from Ada to agent"]


async def test_an_event_of_slack_is_changed_too(settings: Settings) -> None:
    app = echoing()
    app.incoming(lambda turn: turn.text.upper())
    async with running(app, settings):
        await app.store.put([NewEvent(event={"channel": "C1", "ts": "1.2", "text": "hi"})])
        await finished(app.store, queue="inbox")
        [response] = await app.responses("slack")
    assert response.event["message"] == "heard HI"


async def test_metadata_of_hooks_goes_with_the_reply(settings: Settings) -> None:
    app = AgentHarness(lambda turn: Reply("fine", metadata={"agent": turn.metadata["language"]}))

    @app.incoming
    def look(turn: Turn) -> None:
        turn.metadata["language"] = "nl"

    @app.outgoing
    def price(turn: Turn, reply: Reply) -> None:
        reply.metadata["cents"] = len(reply.text)

    async with running(app, settings):
        await app.put("hoi")
        await finished(app.store, queue="inbox")
        [response] = await app.responses("api")
    assert response.event["metadata"] == {"language": "nl", "agent": "nl", "cents": 4}


@both_engines
async def test_a_reply_is_changed_before_it_is_stored(settings: Settings) -> None:
    app = echoing()

    @app.outgoing
    async def sign(turn: Turn, reply: Reply) -> str:
        return f"{reply.text}, {turn.agent}"

    @app.outgoing
    def attach(turn: Turn, reply: Reply) -> Reply:
        return Reply(f"{reply.text}.", files=("plot.png",))

    async with running(app, settings):
        await app.put("hi")
        await finished(app.store, queue="inbox")
        [response] = await app.responses("api")
        [answer_line, _] = await app.store.agent_messages("agent")
    assert (response.event["message"], response.event["files"]) == (
        "heard hi, agent.",
        ["plot.png"],
    )
    assert answer_line.content == "heard hi, agent."


async def test_silence_and_outcomes_are_no_replies(settings: Settings) -> None:
    answers: list[Answer] = [Snooze(AT_ONCE), None]
    app = AgentHarness(lambda turn: answers.pop(0))
    seen: list[Reply] = []
    app.outgoing(lambda turn, reply: seen.append(reply))
    async with running(app, settings):
        await app.put("hi")
        await finished(app.store)
    assert seen == []


async def test_done_keeps_a_message_from_its_agent(settings: Settings) -> None:
    asked: list[str] = []
    app = AgentHarness(lambda turn: asked.append(turn.text))

    @app.incoming
    def no_spam(turn: Turn) -> Done | None:
        return (
            Done((NewEvent(event={"spam": turn.text}, queue="audit"),))
            if "buy" in turn.text
            else None
        )

    async with running(app, settings):
        await app.put("buy this")
        [ended] = await finished(app.store)
        [audit] = await app.store.waiting("audit", "")
        assert [line.content for line in await app.store.agent_messages("agent")] == ["buy this"]
    assert (ended.outcome, audit.event, asked) == ("completed", {"spam": "buy this"}, [])


async def test_done_makes_a_reply_silence(settings: Settings) -> None:
    app = echoing()
    app.outgoing(lambda turn, reply: Done())
    async with running(app, settings):
        await app.put("hi")
        await finished(app.store, queue="inbox")
        assert await app.responses("api") == []
        assert [line.role for line in await app.store.agent_messages("agent")] == ["user"]


async def test_hooks_may_end_a_turn_as_agents_may(settings: Settings) -> None:
    app = echoing()
    app.incoming(lambda turn: Dead("not here", "banned") if turn.text == "in" else None)
    app.outgoing(lambda turn, reply: Dead("not so", "rude"))
    async with running(app, settings):
        await app.put("in", sender="one")
        await app.put("out", sender="two")
        ended = await finished(app.store, 2)
    assert [(one.last_error, one.error_class) for one in ended] == [
        ("not here", "banned"),
        ("not so", "rude"),
    ]


async def test_an_error_of_a_hook_is_the_turn_s_error_and_tried_again(settings: Settings) -> None:
    app = echoing()
    faults: list[Any] = [ValueError("no model"), ValueError("no model"), None]

    @app.outgoing
    def fail(turn: Turn, reply: Reply) -> None:
        fault = faults.pop(0)
        if fault is not None:
            raise fault

    async with running(app, settings, **QUICKLY):
        await app.put("hi")
        [ended] = await finished(app.store, queue="inbox")
        assert len(await app.responses("api")) == 1
    assert (ended.attempts, ended.last_error) == (3, "ValueError: no model")


async def test_a_hook_that_answers_nonsense_is_named(settings: Settings) -> None:
    app = echoing()

    def count(turn: Turn) -> Any:
        return 42

    app.incoming(count)
    async with running(app, settings, max_attempts=1):
        await app.put("hi")
        [ended] = await finished(app.store)
    assert (
        ended.last_error
        == "TypeError: the hook count answered int instead of a text, an outcome or None"
    )


@both_engines
async def test_each_message_of_a_collected_turn_is_heard_alone(settings: Settings) -> None:
    gate, texts = Gate(), list[list[str]]()

    async def answer(turn: Turn) -> Answer:
        texts.append([text_of(event) for event in turn.events])
        await gate(turn)
        return f"to {turn.sender}"

    app = AgentHarness()
    app.add("collector", answer, turns="collect", lane="agent")

    @app.incoming
    def filter_and_mark(turn: Turn) -> str | Done:
        return Done() if turn.text == "spam" else f"{turn.text}!"

    async with running(app, settings):
        await app.put("first", sender="a")
        await until(lambda: gate.inside)
        for text in ("spam", "two", "three"):
            await app.put(text, sender="b")
        gate.open.set()
        await finished(app.store, 4, queue="inbox")
        [_, second] = await app.responses("api")
        lines = await app.store.agent_messages("collector")
    assert texts == [["first!"], ["two!", "three!"]]
    assert (second.event["sender"], second.event["original_message"]) == ("b", "two")
    assert [line.content for line in lines[::-1] if line.role == "user"] == [
        "first",
        "two",
        "three",
    ]


@both_engines
async def test_one_snoozed_message_of_a_collected_turn_holds_none_before_it(
    settings: Settings,
) -> None:
    gate, texts = Gate(), list[list[str]]()

    async def answer(turn: Turn) -> None:
        texts.append([text_of(event) for event in turn.events])
        await gate(turn)

    app = AgentHarness()
    app.add("collector", answer, turns="collect", lane="agent")
    app.incoming(lambda turn: Snooze(NEVER) if turn.text == "later" else None)

    async with running(app, settings):
        await app.put("first")
        await until(lambda: gate.inside)
        for text in ("two", "later"):
            await app.put(text)
        gate.open.set()
        await finished(app.store, 2, queue="inbox")
    assert texts == [["first"], ["two"]]
