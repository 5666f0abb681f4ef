"""A signal that comes while a turn is about to wait is looked for once more, after its settle."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from holdfast import AgentHarness, Turn
from holdfast.agents.base import Answer
from holdfast.chat import ChatStore
from holdfast.consumers.waiting import WaitingTurns
from holdfast.queue.outcome import Lost, Outcome, Settled
from holdfast.queue.turn import LeasedTurn
from tests.steps import both_engines, until

LEASE = timedelta(minutes=1)


@both_engines
async def test_a_signal_between_the_look_and_the_settle_is_not_missed(store: ChatStore) -> None:
    async def answer(turn: Turn) -> Answer:
        return f"got {await turn.signal('paid')}"

    def note(turn: LeasedTurn, outcome: Outcome, result: Settled | Lost) -> None:
        noted.append(outcome)

    app, waiting = AgentHarness(answer), WaitingTurns(store)
    noted: list[Outcome] = []
    worker = app.worker(store, Path("none"))
    with app.using(store):
        await app.put("hi", message_id="m")
        [turn] = await store.claim("inbox", [""], limit=1, lease=LEASE)
        outcome = await worker.handle(turn)
        await app.signal("m", "paid", 1)
        [result] = await store.settle([(turn, outcome)])
        assert await store.claim("inbox", [""], limit=1, lease=LEASE) == []
        waiting.after(note)(turn, outcome, result)
        running = asyncio.create_task(waiting.run())
        [turn] = await until(lambda: store.claim("inbox", [""], limit=1, lease=LEASE))
        running.cancel()
        await store.settle([(turn, await worker.handle(turn))])
        [response] = await app.responses("api")
    assert response.event["message"] == "got 1"
    assert noted == [outcome]


@both_engines
async def test_a_signal_to_the_second_message_of_a_turn_is_not_missed(store: ChatStore) -> None:
    async def answer(turn: Turn) -> Answer:
        return f"got {await turn.signal('paid')}"

    async def claim() -> list[LeasedTurn]:
        return await store.claim("inbox", ["all", ""], limit=1, lease=LEASE, collect_limit=10)

    app, waiting = AgentHarness(), WaitingTurns(store)
    app.add("all", answer, turns="collect")
    with app.using(store):
        for message_id in ("m1", "m2"):
            await app.put("hi", message_id=message_id)
        [turn] = await claim()
        outcome = await app.worker(store, Path("none")).handle(turn)
        await app.signal("m2", "paid", 1)
        [result] = await store.settle([(turn, outcome)])
        waiting.after(None)(turn, outcome, result)
        running = asyncio.create_task(waiting.run())
        [again] = await until(claim)
        running.cancel()
    assert again.ids == turn.ids
