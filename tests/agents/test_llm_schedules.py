"""The tool `schedule` of a language model, and its limits."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from holdfast.agents.llm.schedules import MOST_OF_AGENT
from holdfast.app import AgentHarness
from holdfast.channels.schedule import ScheduleChannel
from holdfast.store.forget import forget
from holdfast.store.memory import open_knowledge, open_observations
from holdfast.store.schedules import Schedules
from holdfast.testing.trial import Trial, trial
from tests.agents.playing import app_of, send, text


def calls(tool: str, *given: dict[str, Any]) -> Any:
    """Play a model that calls a tool, and answers what the calls returned."""

    def play(messages: list[ModelMessage], info: AgentInfo) -> Any:
        last = messages[-1].parts
        returned = [str(part.content) for part in last if isinstance(part, ToolReturnPart)]
        if returned:
            return " / ".join(returned)
        if "again" in str(last[-1]):
            return "done"
        return ModelResponse(parts=[ToolCallPart(tool, dict(one)) for one in given])

    return play


def harness(play: Any, most: int = 2) -> AgentHarness:
    return app_of(play, schedules=most)


async def run_due(at_work: Trial) -> None:
    await ScheduleChannel(at_work.store, 5).run_due(at_work.app.receive)


NOON = {"timing": "2026-01-01T12:00", "text": "look at it again", "zone": "UTC"}


async def test_an_agent_is_asked_again_in_the_conversation_of_its_turn() -> None:
    async with trial(harness(calls("schedule", NOON))) as at_work:
        outcome = await send(at_work, "remind me at noon")
        [schedule] = await Schedules(at_work.store).all()
        assert text(outcome) == f"schedule {schedule.id} runs next at 2026-01-01 12:00:00+00:00"
        assert (schedule.source, schedule.to) == ("agent", "api:ann")
        at_work.clock.tick(hours=12)
        await run_due(at_work)
        [(turn, _)] = await at_work.work()
        assert (turn.text, turn.channel, turn.sender) == ("look at it again", "api", "ann")
        reminder = (await at_work.responses())[-1]
        assert (reminder.event["conversation"], reminder.event["message"]) == ("api:ann", "done")


async def test_the_same_call_in_a_later_attempt_is_the_same_schedule() -> None:
    async with trial(harness(calls("schedule", NOON, NOON))) as at_work:
        await send(at_work, "remind me at noon")
        assert len(await Schedules(at_work.store).all()) == 1


async def test_schedules_are_limited_for_each_conversation_and_in_frequency() -> None:
    wanted = [NOON | {"text": f"again {number}"} for number in range(3)]
    often = {"timing": "every 5 min", "text": "again"}
    async with trial(harness(calls("schedule", *wanted, often), most=2)) as at_work:
        answer = text(await send(at_work, "remind me"))
        assert "too many schedules" in answer
        assert "at most every 0:10:00" in answer
        assert len(await Schedules(at_work.store).all()) == 2
        await send(at_work, "remind me", sender="bob")
        assert len(await Schedules(at_work.store).all()) == 4
    assert MOST_OF_AGENT == 100


async def test_an_agent_removes_only_schedules_of_its_conversation() -> None:
    async with trial(harness(calls("schedule", NOON))) as at_work:
        await send(at_work, "remind me at noon")
        [schedule] = await Schedules(at_work.store).all()
    app = harness(calls("cancel_schedule", {"id": schedule.id}))
    async with trial(app) as at_work:
        await Schedules(at_work.store).add(schedule)
        assert "no schedule" in text(await send(at_work, "cancel it", sender="bob"))
        assert text(await send(at_work, "cancel it")) == f"schedule {schedule.id} is removed"
        assert await Schedules(at_work.store).all() == []


async def test_forgetting_a_person_removes_their_schedules() -> None:
    async with trial(harness(calls("schedule", NOON))) as at_work:
        for sender in ("ann", "bob"):
            await send(at_work, "remind me at noon", sender=sender)
        observations, knowledge = open_observations(at_work.store), open_knowledge(at_work.store)
        removed = await forget(observations, knowledge, "default", "USER", "api:name:ann")
        assert removed["schedules"] == 1
        assert [one.to for one in await Schedules(at_work.store).all()] == ["api:bob"]


async def test_an_agent_without_the_setting_has_no_such_tool() -> None:
    app = app_of(lambda _, info: f"{len(info.function_tools)} tools")
    async with trial(app) as at_work:
        assert text(await send(at_work, "hello")) == "0 tools"
