"""AgentHarness as a whole: puts, agents, limits across processes, a caller's own group."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast.agents.base import Answer
from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.chat import ChatStore
from holdfast.consumers.limits import Limits
from holdfast.errors import HoldfastError
from holdfast.message import text_of
from holdfast.queue.store import Transaction
from holdfast.routing import router
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.queue.test_consumer import Gate
from tests.steps import AT_ONCE, NEVER, both_engines, finished, running, until


async def test_a_generated_id_that_is_taken_is_drawn_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = AgentHarness(lambda turn: None)
    async with running(app, settings):
        drawn = iter(["api_aaaaaaaa", "api_aaaaaaaa", "api_aaaaaaaa", "api_bbbbbbbb"])
        monkeypatch.setattr(router, "new_id", lambda prefix: next(drawn))
        assert await app.put("first") == "api_aaaaaaaa"
        assert await app.put("second") == "api_bbbbbbbb"
        assert len(await finished(app.store, 2)) == 2


@both_engines
async def test_the_same_message_id_is_stored_once(settings: Settings) -> None:
    app = AgentHarness(lambda turn: None)
    async with running(app, settings):
        assert await app.put("first", message_id="mine") == "mine"
        assert await app.put("again", message_id="mine") is None
        await finished(app.store)
        assert await app.put("after its end", message_id="mine") is None


async def put_both(app: AgentHarness, transaction: Transaction) -> None:
    await app.put("never", message_id="never", connection=transaction)
    await app.put("never either", agent="nobody", connection=transaction)


@both_engines
async def test_an_empty_message_is_refused(settings: Settings) -> None:
    async with running(AgentHarness(echo), settings) as app:
        for text in ("", " \n"):
            with pytest.raises(HoldfastError, match="needs a text"):
                await app.put(text)
        assert await app.store.counts() == []


async def test_a_put_joins_a_transaction(settings: Settings) -> None:
    app = AgentHarness(echo)
    async with running(app, settings):
        with pytest.raises(HoldfastError, match="no agent named"):
            async with app.store.transaction() as transaction:
                await put_both(app, transaction)
        async with app.store.transaction() as transaction:
            await app.put("kept", message_id="kept", connection=transaction)
        [ended] = await finished(app.store, queue="inbox")
    assert ended.message_id == "kept"


async def test_each_agent_gets_its_messages_and_the_default_agent_the_rest(
    settings: Settings,
) -> None:
    received: list[tuple[str, str]] = []

    def receive(turn: Turn) -> None:
        received.append((turn.agent, turn.text))

    app = AgentHarness(default="coder")
    app.add("writer", receive)
    app.add("coder", receive)
    app.team("dev", agents=["coder", "writer"], leader="writer")
    async with running(app, settings):
        await app.put("a", agent="WRITER")
        await app.put("b", agent="coder")
        await app.put("c", agent="dev")
        await app.put("d")
        with pytest.raises(HoldfastError, match="no agent named 'nobody'"):
            await app.put("e", agent="nobody")
        await finished(app.store, 4)
    assert sorted(received) == [("coder", "b"), ("coder", "d"), ("writer", "a"), ("writer", "c")]


async def test_an_agent_that_collects_gets_waiting_messages_in_one_turn(settings: Settings) -> None:
    gate, texts = Gate(), list[list[str]]()

    async def answer(turn: Turn) -> Answer:
        texts.append([one.event["message"] for one in turn.events])
        await gate(turn)
        return "all of it"

    app = AgentHarness()
    app.add("collector", answer, turns="collect", lane="agent")
    async with running(app, settings):
        await app.put("one", sender="a")
        await until(lambda: gate.inside)
        for text in ("two", "three", "four"):
            await app.put(text, sender="b")
        gate.open.set()
        await finished(app.store, 4, queue="inbox")
        assert len(await app.responses("api")) == 2
        lines = await app.store.agent_messages("collector")
    assert texts == [["one"], ["two", "three", "four"]]
    assert [line.content for line in lines[::-1] if line.role == "user"] == [
        "one",
        "two",
        "three",
        "four",
    ]


@both_engines
async def test_issue_13_3_people_mixed_in_one_lane_are_answered_in_their_own_conversations(
    settings: Settings,
) -> None:
    """The defaults of a command agent: one lane, and turns that collect."""
    gate = Gate()

    async def answer(turn: Turn) -> Answer:
        await gate(turn)
        return " and ".join(text_of(event) for event in turn.events)

    app = AgentHarness()
    app.add("collector", answer, turns="collect", lane="agent")
    async with running(app, settings):
        await app.put("wait", sender="a")
        await until(lambda: gate.inside)
        sent = [(sender, await app.put(f"{sender}'s secret", sender=sender)) for sender in "bbcb"]
        gate.open.set()
        await finished(app.store, 5, queue="inbox")
        answers = (await app.responses("api"))[1:]
    assert [(one.event["conversation"], one.event["message"]) for one in answers] == [
        ("api:b", "b's secret and b's secret"),
        ("api:c", "c's secret"),
        ("api:b", "b's secret"),
    ]
    answered = [
        id_ for one in answers for id_ in one.event.get("message_ids") or [one.event["message_id"]]
    ]
    assert answered == [id_ for _, id_ in sent]


@both_engines
async def test_an_agent_s_limit_holds_across_two_harnesses(settings: Settings) -> None:
    gate = Gate()

    def limited() -> AgentHarness:
        async def answer(turn: Turn) -> Answer:
            await gate(turn)
            return None

        app = AgentHarness()
        app.add("scarce", answer, lane="none", concurrency=3)
        return app

    often: dict[str, Any] = {"poll": timedelta(milliseconds=50), "poll_jitter": AT_ONCE}
    async with running(limited(), settings, **often) as one, running(limited(), settings, **often):
        for number in range(12):
            await one.put(str(number))
        await until(lambda: len(gate.inside) == 3)
        gate.open.set()
        await finished(one.store, 12)
    assert gate.most == 3


@both_engines
async def test_conversations_stay_in_order_across_two_harnesses(settings: Settings) -> None:
    received: dict[str, list[str]] = {}
    busy: set[str] = set()

    async def answer(turn: Turn) -> Answer:
        assert turn.conversation not in busy
        busy.add(turn.conversation)
        await asyncio.sleep(0)
        received.setdefault(turn.sender, []).append(turn.text)
        busy.discard(turn.conversation)
        return turn.text

    numbers = [str(number) for number in range(10)]
    async with (
        running(AgentHarness(answer), settings, workers=2) as one,
        running(AgentHarness(answer), settings, workers=2),
    ):
        for number in numbers:
            for sender in ("a", "b", "c"):
                await one.put(number, sender=sender)
        await finished(one.store, 30, queue="inbox")
        responses = await one.responses("api")
    assert received == dict.fromkeys(("a", "b", "c"), numbers)
    for sender in ("a", "b", "c"):
        assert [
            one.event["message"] for one in responses if one.event["sender"] == sender
        ] == numbers


async def test_a_caller_s_own_group_holds_its_tasks(settings: Settings) -> None:
    app = AgentHarness(echo, settings=settings)
    with pytest.raises(HoldfastError, match="not running"):
        await app.put("too early")
    async with asyncio.TaskGroup() as group:
        await app.run(task_group=group)
        await app.put("hi")
        await finished(app.store, queue="inbox")
        app.stop()
    with pytest.raises(HoldfastError, match="not running"):
        await app.put("too late")


async def test_a_failure_of_the_caller_s_group_stops_it_cleanly(
    settings: Settings, store: ChatStore
) -> None:
    app = AgentHarness(echo, settings=settings)

    async def fail(group: asyncio.TaskGroup) -> None:
        await app.run(task_group=group)
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            await fail(group)
    assert raised.group_contains(ZeroDivisionError)
    assert await store.leased("inbox") == []


async def test_a_harness_runs_again_after_a_stop(settings: Settings) -> None:
    app = AgentHarness(lambda turn: None)
    for number in (1, 2):
        async with running(app, settings):
            await app.put("hi")
            await finished(app.store, number)


async def test_a_process_shows_what_it_does(settings: Settings) -> None:
    limits = Limits(report_every=timedelta(milliseconds=20))
    gate = Gate()

    async def answer(turn: Turn) -> Answer:
        await gate(turn)
        return None

    async with running(AgentHarness(answer, limits=limits), settings) as app:
        await app.put("hi")

        async def shows_a_turn() -> bool:
            [process] = await app.store.processes()
            return process.turns == 1 and process.last_wake_reason == "triggered"

        await until(shows_a_turn)
        gate.open.set()
        await finished(app.store)
    async with open_store(settings.database) as store:
        assert await store.processes() == []


async def test_a_sweep_expires_unclaimed_messages_but_no_live_lease(
    settings: Settings,
) -> None:
    gate = Gate()

    async def answer(turn: Turn) -> Answer:
        await gate(turn)
        return None

    app = AgentHarness()
    app.add("only", answer, max_attempts=1)
    often: dict[str, Any] = {
        "sweep_every": timedelta(milliseconds=20),
        "expire_after": timedelta(milliseconds=100),
    }
    async with running(app, settings, workers=1, poll=NEVER, **often):
        await app.put("running", sender="a")
        await until(lambda: gate.inside)
        await app.put("waiting", sender="b")
        [expired] = await finished(app.store)
        assert (expired.outcome, expired.event["message"]) == ("expired", "waiting")
        gate.open.set()
        ended = await finished(app.store, 2)
    assert [(one.event["message"], one.outcome) for one in ended] == [
        ("running", "completed"),
        ("waiting", "expired"),
    ]
