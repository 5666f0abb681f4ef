"""A plain function runs in a thread; its turn is kept until the thread ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast.agents.function import FunctionAgent
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.chat import ChatStore
from holdfast.consumers.limits import Limits
from holdfast.queue.turn import LeasedTurn
from holdfast.settings import Settings
from tests.steps import both_engines, finished, running, until

SOON = timedelta(milliseconds=50)
CANNOT_STOP = "a plain function cannot be stopped; its turn is kept until it ends"


class BlockingAgent:
    """A plain agent that waits in its thread until it is let through."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = 0
        self.runs = 0

    def __call__(self, turn: Turn) -> str:
        self.runs += 1
        self.inside += 1
        assert self.open.wait(30)
        self.inside -= 1
        return f"heard {turn.text}"


@pytest.fixture
def blocking() -> Iterator[BlockingAgent]:
    blocking = BlockingAgent()
    yield blocking
    blocking.open.set()


def is_logged(caplog: pytest.LogCaptureFixture) -> bool:
    return any(record.getMessage().startswith(CANNOT_STOP) for record in caplog.records)


@both_engines
async def test_one_that_ends_late_at_a_stop_is_answered_once(
    store: ChatStore, settings: Settings, blocking: BlockingAgent, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        running(AgentHarness(blocking), settings, grace=SOON) as first,
        running(AgentHarness(blocking), settings) as second,
    ):
        await first.put("hi")
        await until(lambda: blocking.inside)
        (first if first.consumers[0].running else second).stop()
        await until(lambda: is_logged(caplog) or second.stopping)
        [leased] = await store.leased("inbox")
        blocking.open.set()
        [ended] = await finished(store, queue="inbox")
        assert len(await store.waiting("outbox", "api")) == 1
    assert (ended.id, ended.attempts, blocking.runs) == (leased.id, 1, 1)


@both_engines
async def test_one_that_outlasts_the_stop_of_a_harness_keeps_its_lease(
    settings: Settings,
    blocking: BlockingAgent,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a caller's own group nobody ends the process."""
    first = AgentHarness(blocking, limits=Limits(let_go_within=timedelta(seconds=1)))
    quickly: dict[str, Any] = {
        "lease": timedelta(seconds=3),
        "poll": SOON,
        "poll_jitter": timedelta(0),
    }
    async with running(first, settings, grace=SOON, **quickly) as stopped:
        await stopped.put("hi")
        await until(lambda: blocking.inside)
        stopped.stop()
        async with running(AgentHarness(blocking), settings, **quickly) as other:
            await until(
                lambda: any("did not stop" in record.getMessage() for record in caplog.records)
            )
            over_at = time.monotonic() + 4
            await until(lambda: time.monotonic() > over_at)
            assert blocking.runs == 1
            blocking.open.set()
            [ended] = await finished(other.store, queue="inbox")
    assert (ended.outcome, ended.attempts, blocking.runs) == ("completed", 1, 1)


async def test_one_past_its_time_limit_keeps_its_turn_and_its_answer(
    settings: Settings, blocking: BlockingAgent, caplog: pytest.LogCaptureFixture
) -> None:
    app = AgentHarness()
    app.add("slow", blocking, timeout=SOON)
    async with running(app, settings):
        await app.put("hi")
        await until(lambda: is_logged(caplog))
        assert len(await app.store.leased("inbox")) == 1
        blocking.open.set()
        [ended] = await finished(app.store, queue="inbox")
        [response] = await app.responses("api")
    assert (ended.outcome, ended.attempts, blocking.runs) == ("completed", 1, 1)
    assert response.event["message"] == "heard hi"


async def test_its_error_after_the_time_limit_is_a_retry(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(turn: Turn) -> None:
        assert gate.wait(30)
        raise ValueError("late and wrong")

    gate = threading.Event()
    app = AgentHarness()
    app.add("slow", fail, timeout=SOON, max_attempts=1)
    async with running(app, settings):
        await app.put("hi")
        await until(lambda: is_logged(caplog))
        gate.set()
        [ended] = await finished(app.store)
    assert (ended.outcome, ended.last_error) == ("dead", "ValueError: late and wrong")


async def test_the_answer_of_a_turn_that_was_cancelled_is_not_sent(
    settings: Settings, blocking: BlockingAgent, caplog: pytest.LogCaptureFixture
) -> None:
    app = AgentHarness(blocking)
    async with running(app, settings, lease=timedelta(seconds=1)):
        await app.put("hi")
        await until(lambda: blocking.inside)
        [leased] = await app.store.leased("inbox")
        assert await app.store.cancel(leased.id, "enough")
        await until(lambda: is_logged(caplog))
        blocking.open.set()
        # A later message of the same conversation is answered, so the first one had its time.
        await app.put("there")
        [response] = await until(lambda: app.responses("api"))
    assert response.event["message"] == "heard there"


def turn() -> Turn:
    class Primary:
        id = 1

    return Turn(LeasedTurn("inbox", 1, (Primary(),)), "plain")  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [StopIteration("x"), SystemExit(3), KeyboardInterrupt()])
async def test_any_exception_is_heard(error: BaseException) -> None:
    def fail(turn: Turn) -> None:
        raise error

    with pytest.raises((type(error), RuntimeError)):
        await FunctionAgent(fail).answer(turn())


async def test_a_plain_function_may_hand_back_a_coroutine() -> None:
    async def slowly() -> str:
        await asyncio.sleep(0)
        return "here"

    assert await FunctionAgent(lambda turn: slowly()).answer(turn()) == "here"


async def test_an_object_with_an_async_call_runs_in_the_loop() -> None:
    class Agent:
        async def __call__(self, turn: Turn) -> str:
            return threading.current_thread().name

    assert await FunctionAgent(Agent()).answer(turn()) == threading.current_thread().name
