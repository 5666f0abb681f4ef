"""Turns that are stopped, released or made to wait in a running process keep what is recorded."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

from holdfast import AgentHarness, Turn
from holdfast.agents.base import Answer
from holdfast.chat import ChatStore
from holdfast.queue.journal import Journal
from holdfast.queue.store import Filter
from holdfast.settings import Settings
from holdfast.store.chain import find_message
from tests.steps import Proxy, both_engines, consuming, finished, put, running, until

QUICKLY: dict[str, Any] = {
    "retry_first": timedelta(milliseconds=5),
    "retry_most": timedelta(milliseconds=10),
}


async def _journal(store: ChatStore) -> Journal:
    [event] = await store.waiting("inbox", "")
    return await store.journal(event.id)


@both_engines
async def test_a_released_turn_keeps_its_steps_and_goes_on(settings: Settings) -> None:
    runs: list[str] = []
    in_second, go_on = asyncio.Event(), asyncio.Event()

    async def first() -> int:
        runs.append("first")
        return 1

    async def second() -> int:
        runs.append("second")
        in_second.set()
        await go_on.wait()
        return 2

    async def answer(turn: Turn) -> Answer:
        one = await turn.step("first", first)
        two = await turn.step("second", second)
        return f"{one} {two} in attempt {turn.attempt}"

    app = AgentHarness(answer)
    async with running(app, settings, grace=timedelta(0)):
        await app.put("hi")
        await in_second.wait()
    go_on.set()
    async with running(app, settings):
        await finished(app.store)
        [response] = await app.responses("api")
    assert response.event["message"] == "1 2 in attempt 1"
    assert runs == ["first", "second", "second"]


@both_engines
async def test_a_stop_during_a_step_keeps_the_text_and_the_steps(settings: Settings) -> None:
    working, cancelled = asyncio.Event(), asyncio.Event()

    async def slow() -> int:
        working.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 1

    async def answer(turn: Turn) -> Answer:
        await turn.step("quick", int)
        await turn.write("Half an answer")
        await turn.step("slow", slow)
        return "never"

    app = AgentHarness()
    app.add("a", answer, lease=timedelta(seconds=1))
    async with running(app, settings):
        await app.put("hi", message_id="m")
        await working.wait()
        event = await find_message(app.store, "m")
        assert event is not None
        journal: Journal = await until(lambda: _with_text(app.store, event.id))
        assert await app.store.cancel(event.id, "cancelled by Ann")
        await cancelled.wait()
        [letter] = await finished(app.store)
        kept = await app.store.journal(event.id)
    assert journal.text == kept.text == "Half an answer"
    assert letter.outcome == "cancelled"
    assert kept.steps["quick"].state == "done"


async def _with_text(store: ChatStore, event_id: int) -> Journal | None:
    journal = await store.journal(event_id)
    return journal if journal.text else None


@both_engines
async def test_a_signal_wakes_a_turn_that_waits_in_a_running_process(settings: Settings) -> None:
    async def answer(turn: Turn) -> Answer:
        names = [await turn.signal("name"), await turn.signal("name")]
        return " and ".join(names)

    app = AgentHarness(answer)
    async with running(app, settings):
        await app.put("hi", message_id="m")
        await app.signal("m", "name", "Ann")
        await until(lambda: _waits_for(app.store, "signal name#2"))
        await app.signal("m", "name", "Bob")
        await finished(app.store)
        [response] = await app.responses("api")
    assert response.event["message"] == "Ann and Bob"


async def _waits_for(store: ChatStore, key: str) -> bool:
    return key in (await _journal(store)).steps


@both_engines
async def test_a_sleep_ends_by_itself_and_its_lane_waits_for_it(settings: Settings) -> None:
    async def answer(turn: Turn) -> Answer:
        if turn.text == "slow":
            await turn.sleep(0.3)
        ended.append(turn.text)
        return "ok"

    ended: list[str] = []
    app = AgentHarness(answer)
    async with running(app, settings):
        await app.put("slow")
        await app.put("quick")
        await finished(app.store, 2)
    assert ended == ["slow", "quick"]


@both_engines
async def test_a_turn_that_waits_may_let_its_lane_go_on(settings: Settings) -> None:
    async def answer(turn: Turn) -> Answer:
        if turn.text == "slow":
            await turn.signal("go")
        ended.append(turn.text)
        return "ok"

    ended: list[str] = []
    app = AgentHarness()
    app.add("a", answer, while_waiting="release")
    async with running(app, settings):
        await app.put("slow", message_id="slow")
        await app.put("quick")
        await finished(app.store)
        await app.signal("slow", "go")
        await finished(app.store, 2)
    assert ended == ["quick", "slow"]


async def test_a_turn_knows_until_when_its_lease_lasts(proxy: Proxy) -> None:
    lease = timedelta(minutes=10).total_seconds()
    seen: list[float] = []

    async def handle(turn: Any) -> Any:
        seen.append(turn.until - time.monotonic())
        raise ValueError("enough")

    await put(proxy)
    async with consuming(proxy, handle):
        await until(lambda: seen)
    assert lease - 60 < seen[0] <= lease


async def test_a_record_outlasts_an_outage_of_the_database(
    proxy: Proxy, store: ChatStore, settings: Settings
) -> None:
    app = AgentHarness()
    runs: list[int] = []

    async def go_down() -> int:
        runs.append(1)
        proxy.down = True
        asyncio.get_running_loop().call_later(0.3, setattr, proxy, "down", False)
        return 7

    async def answer(turn: Turn) -> Answer:
        return str(await turn.step("down", go_down, effect="once"))

    app.add("agent", answer)
    with app.using(store):
        await app.put("hi")
        worker = app.worker(proxy, settings.files)
        async with consuming(proxy, worker.handle):
            await finished(store, 1, queue="inbox")
        [response] = await app.responses("api")
        assert await store.dead(Filter()) == []
    assert response.event["message"] == "7"
    assert runs == [1]
