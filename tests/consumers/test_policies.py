"""Turn policies: order, concurrency, collecting, and failures of collected turns."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.agents.base import Answer
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Dead, Retry
from holdfast.queue.store import Filter
from holdfast.settings import Settings
from tests.consumers.test_answers import QUICKLY
from tests.queue.test_consumer import Gate
from tests.steps import AT_ONCE, both_engines, finished, running, until

pytestmark = both_engines


def gated(gate: Gate, **policy: Any) -> AgentHarness:
    async def answer(turn: Turn) -> Answer:
        await gate(turn)
        return turn.text

    app = AgentHarness()
    app.add("coder", answer, **policy)
    return app


@pytest.mark.parametrize(("lane", "at_once"), [("agent", 1), ("conversation", 2), ("none", 4)])
async def test_a_lane_is_an_agent_a_conversation_or_nothing(
    settings: Settings, lane: str, at_once: int
) -> None:
    """Two messages each of two people."""
    gate = Gate()
    async with running(gated(gate, lane=lane), settings) as app:
        for number, sender in enumerate("abab"):
            await app.put(str(number), sender=sender, agent="coder" if number % 2 else None)
        await until(lambda: len(gate.inside) == at_once)
        assert await counted(app) == (4 - at_once, at_once)
        gate.open.set()
        ended = await finished(app.store, 4, queue="inbox")
    assert gate.most == at_once
    of_lane: dict[str | None, list[int]] = {}
    for one in sorted(ended, key=lambda one: one.claimed):
        of_lane.setdefault(one.lane, []).append(one.id)
    assert lane == "none" or all(ids == sorted(ids) for ids in of_lane.values())
    assert (
        len([one for one in of_lane if one is not None])
        == {"agent": 1, "conversation": 2, "none": 0}[lane]
    )


async def counted(app: AgentHarness) -> tuple[int, int]:
    """Of all targets of the inbox together: how many wait, and how many run."""
    counts = [count for count in await app.store.counts() if count.queue == "inbox"]
    return sum(one.ready + one.queued for one in counts), sum(one.leased for one in counts)


@pytest.mark.parametrize(("turns", "sizes"), [("each", [1, 1, 1, 1]), ("collect", [1, 3])])
async def test_each_turn_is_one_message_unless_it_collects(
    settings: Settings, turns: Any, sizes: list[int]
) -> None:
    gate, seen = Gate(), list[int]()

    async def answer(turn: Turn) -> Answer:
        seen.append(len(turn.events))
        await gate(turn)
        return None

    app = AgentHarness()
    app.add("coder", answer, turns=turns)
    async with running(app, settings):
        await app.put("0")
        await until(lambda: gate.inside)
        for number in (1, 2, 3):
            await app.put(str(number))
        gate.open.set()
        await finished(app.store, 4)
    assert seen == sizes


@pytest.mark.parametrize("how", ["an exception", "Retry", "Dead"])
async def test_a_collected_turn_that_fails_is_retried_one_by_one_in_order(
    settings: Settings, how: str
) -> None:
    gate, runs = Gate(), list[list[str]]()

    async def answer(turn: Turn) -> Answer:
        texts = [event.event["message"] for event in turn.events]
        runs.append(texts)
        if texts == ["0"]:
            await gate(turn)
        if "bad" not in texts:
            return "fine"
        if how == "an exception":
            raise ValueError("bad")
        return Retry("bad", AT_ONCE) if how == "Retry" else Dead("bad", "spoilt")

    app = AgentHarness()
    app.add("coder", answer, turns="collect", lane="agent", max_attempts=3)
    async with running(app, settings, **QUICKLY):
        await app.put("0")
        await until(lambda: gate.inside)
        for text in ("1", "bad", "3"):
            await app.put(text, sender="b")
        gate.open.set()
        ended = await finished(app.store, 4, queue="inbox")
        answered = [response.event["original_message"] for response in await app.responses("api")]
    # The collected turn used one attempt of each. A Dead splits it, and ends a single message.
    alone = [["bad"]] if how == "Dead" else [["bad"], ["bad"]]
    assert runs == [["0"], ["1", "bad", "3"], ["1"], *alone, ["3"]]
    assert {one.event["message"]: one.outcome for one in ended} == {
        "0": "completed",
        "1": "completed",
        "bad": "dead",
        "3": "completed",
    }
    assert answered == ["0", "1", "3"]


async def test_the_limit_of_the_default_agent_counts_both_its_names(settings: Settings) -> None:
    gate = Gate()
    often: dict[str, Any] = {"poll": QUICKLY["retry_most"], "poll_jitter": AT_ONCE}
    apps = [gated(gate, lane="none", concurrency=2) for _ in range(2)]
    async with running(apps[0], settings, **often) as one, running(apps[1], settings, **often):
        for number in range(8):
            await one.put(str(number), agent="coder" if number % 2 else None)
        await until(lambda: len(gate.inside) == 2)
        gate.open.set()
        await finished(one.store, 8, queue="inbox")
    assert gate.most == 2


async def test_attempts_of_slack_messages_are_a_setting(settings: Settings) -> None:
    tried: list[int] = []

    async def fail(turn: Turn) -> str:
        tried.append(turn.attempt)
        raise RuntimeError("broken")

    async with running(AgentHarness(fail), settings, slack_max_attempts=2, **QUICKLY) as app:
        await app.store.put(
            [NewEvent(event={"type": "app_mention", "text": "hi", "channel": "C", "ts": "1.0"})]
        )
        await until(lambda: _has_died(app))
    assert tried == [1, 2]


async def _has_died(app: AgentHarness) -> bool:
    return bool(await app.store.dead(Filter()))
