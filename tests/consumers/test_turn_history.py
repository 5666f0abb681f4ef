"""`turn.history()` and `turn.sender_id` on every channel."""

from __future__ import annotations

import gc
import weakref

from holdfast import AgentHarness, Dead, Turn
from holdfast.agents.base import Answer
from holdfast.queue.event import Event, NewEvent
from holdfast.routing.router import Address
from holdfast.testing.trial import Trial, trial

ANN, BOB = Address(sender="Ann", sender_id="u1"), Address(sender="bob")


def reading(limit: int = 50) -> tuple[AgentHarness, list[list[tuple[str, str, bool]]]]:
    seen: list[list[tuple[str, str, bool]]] = []

    async def answer(turn: Turn) -> Answer:
        seen.append([(line.sender, line.text, line.is_own) for line in await turn.history(limit)])
        return f"heard {turn.text}"

    return AgentHarness(answer), seen


async def send_and_work(at_work: Trial, text: str, address: Address) -> None:
    await at_work.say(text, address=address)
    await at_work.work()


async def test_history_is_the_conversation_so_far_on_every_channel() -> None:
    app, seen = reading()
    async with trial(app) as at_work:
        for address in (ANN, BOB, Address(channel="web", sender="Ann", sender_id="u1"), ANN):
            await send_and_work(at_work, "hello", address)
    assert seen == [[], [], [], [("Ann", "hello", False), ("agent", "heard hello", True)]]


async def test_history_has_the_newest_lines_within_its_limit_oldest_first() -> None:
    app, seen = reading(limit=3)
    async with trial(app) as at_work:
        for text in ("one", "two", "three"):
            await send_and_work(at_work, text, ANN)
    assert seen[-1] == [
        ("agent", "heard one", True),
        ("Ann", "two", False),
        ("agent", "heard two", True),
    ]


async def test_history_has_dead_messages_but_none_that_wait() -> None:
    seen: list[list[str]] = []

    async def answer(turn: Turn) -> Answer:
        seen.append([line.text for line in await turn.history()])
        return Dead("broken") if turn.text == "one" else f"heard {turn.text}"

    async with trial(AgentHarness(answer)) as at_work:
        for text in ("one", "two", "three"):
            await at_work.say(text, address=ANN)
        await at_work.work()
    assert seen == [[], ["one"], ["one", "two", "heard two"]]


async def test_an_answer_follows_its_message_in_history_whatever_came_between() -> None:
    app, seen = reading()
    async with trial(app) as at_work:
        for text in ("one", "two", "three"):
            await at_work.say(text, address=ANN)
        await at_work.work()
        lines = await at_work.store.agent_messages("agent")
    assert [text for _, text, _ in seen[-1]] == ["one", "heard one", "two", "heard two"]
    # The lines themselves stand in the order in which they were written.
    assert [line.content for line in lines[::-1]] == [
        "one",
        "two",
        "three",
        "heard one",
        "heard two",
        "heard three",
    ]


async def test_a_message_without_conversation_has_no_history() -> None:
    app, seen = reading()
    async with trial(app) as at_work:
        for _ in range(2):
            await at_work.store.put(
                [NewEvent(event={"kind": "message", "message": "x", "sender": "a"})]
            )
            await at_work.work()
    assert seen == [[], []]


async def test_a_worked_turn_is_freed_without_the_garbage_collector() -> None:
    messages: list[weakref.ref[Event]] = []

    async def answer(turn: Turn) -> Answer:
        messages.append(weakref.ref(turn.primary))
        return None

    async with trial(AgentHarness(answer)) as at_work:
        gc.disable()
        try:
            await send_and_work(at_work, "hello", ANN)
            at_work.worked.clear()
            assert [message() for message in messages] == [None]
        finally:
            gc.enable()


async def test_the_sender_has_an_id_where_the_channel_gives_one() -> None:
    ids: list[str | None] = []

    async def answer(turn: Turn) -> Answer:
        ids.append(turn.sender_id)
        return None

    async with trial(AgentHarness(answer)) as at_work:
        await send_and_work(at_work, "a", ANN)
        await send_and_work(at_work, "b", BOB)
        await at_work.store.put(
            [NewEvent(event={"type": "app_mention", "user": "U1", "text": "hi"})]
        )
        await at_work.work()
    assert ids == ["u1", None, "U1"]
