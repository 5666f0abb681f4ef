"""Answers of agents end their turns: silence, a reply, an outcome, or a mistake."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from holdfast.agents.base import Answer, Reply
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.queue.event import OUTBOX, NewEvent
from holdfast.queue.outcome import Dead, Retry, Snooze
from holdfast.queue.store import Filter
from holdfast.settings import Settings
from tests.steps import AT_ONCE, both_engines, finished, running, until

QUICKLY: dict[str, Any] = {
    "retry_first": timedelta(milliseconds=5),
    "retry_most": timedelta(milliseconds=10),
}


@both_engines
async def test_a_text_is_a_response_to_where_the_message_came_from(settings: Settings) -> None:
    async def answer(turn: Turn) -> Answer:
        return f"{turn.agent} heard {turn.text} from {turn.sender}"

    app = AgentHarness(default="coder")
    app.add("coder", answer)
    async with running(app, settings):
        message_id = await app.put(
            "hi", channel="web", sender="Ada", sender_id="ada", message_id="web_1"
        )
        [message] = await finished(app.store)
        [response] = await app.responses("web")
        assert message_id == "web_1"
        assert response.event == {
            "kind": "response",
            "channel": "web",
            "conversation": "web:ada",
            "sender": "Ada",
            "sender_id": "ada",
            "message": "coder heard hi from Ada",
            "original_message": "hi",
            "message_id": "web_1",
            "agent": "coder",
        }
        assert (response.queue, response.target, response.lane) == (OUTBOX, "web", "web/web:ada")
        assert (response.message_id, response.parent_id, response.hops) == (
            "web_1/1",
            message.id,
            0,
        )
        lines = await app.store.agent_messages("coder")
        assert [
            (line.role, line.content, line.sender, line.message_id) for line in lines[::-1]
        ] == [
            ("user", "hi", "Ada", "web_1"),
            ("assistant", "coder heard hi from Ada", "coder", "web_1"),
        ]


async def test_a_reply_has_files_and_metadata(settings: Settings) -> None:
    app = AgentHarness(lambda turn: Reply("look", ("plot.png",), {"mood": "good"}))
    async with running(app, settings):
        await app.put("hi")
        await finished(app.store)
        [response] = await app.responses("api")
    assert (response.event["files"], response.event["metadata"]) == (["plot.png"], {"mood": "good"})


async def test_none_is_silence(settings: Settings) -> None:
    app = AgentHarness(lambda turn: None)
    async with running(app, settings):
        await app.put("hi")
        [ended] = await finished(app.store)
        assert await app.responses("api") == []
        assert [line.role for line in await app.store.agent_messages("agent")] == ["user"]
    assert ended.outcome == "completed"


async def test_outcomes_can_be_answered(settings: Settings) -> None:
    answers: list[Answer] = [Snooze(AT_ONCE), Retry("busy", AT_ONCE), Dead("never", "gone")]
    app = AgentHarness(lambda turn: answers.pop(0))
    async with running(app, settings):
        await app.put("hi")
        [ended] = await finished(app.store)
        assert [line.content for line in await app.store.agent_messages("agent")] == ["hi"]
    assert (ended.outcome, ended.attempts, ended.last_error, ended.error_class) == (
        "dead",
        2,
        "never",
        "gone",
    )


@both_engines
async def test_what_a_turn_emits_is_stored_with_its_end_or_not_at_all(settings: Settings) -> None:
    def answer(turn: Turn) -> Answer:
        turn.emit(NewEvent(event={"step": turn.attempt}, queue="audit"))
        return Retry("again", AT_ONCE) if turn.attempt == 1 else "done"

    app = AgentHarness(answer)
    async with running(app, settings):
        await app.put("hi", message_id="one")
        await finished(app.store, queue="inbox")
        [audit] = await app.store.waiting("audit", "")
        [response] = await app.responses("api")
    assert (audit.event, audit.message_id) == ({"step": 2}, "one/2")
    assert response.message_id == "one/1"


BAD: dict[str, Any] = {
    "a payload that is no JSON": lambda turn: turn.emit(NewEvent(event={"when": object()})),
    "an emit that is no event": lambda turn: turn.emit("hello"),
    "metadata that is no JSON": lambda turn: Reply("x", metadata={"what": object()}),
    "not a number": lambda turn: Reply("x", metadata={"nan": float("nan")}),
    "no answer at all": lambda turn: 42,
}


@both_engines
@pytest.mark.parametrize("what", BAD)
async def test_a_bad_answer_is_a_dead_letter_that_says_why_and_fails_nobody_else(
    settings: Settings, what: str
) -> None:
    async def answer(turn: Turn) -> Any:
        # All end together, so that they are settled together.
        waiting.append(turn)
        await until(lambda: len(waiting) >= 5 or turn.attempt > 1)
        return BAD[what](turn) if turn.text == "bad" else "good"

    waiting: list[Turn] = []
    app = AgentHarness(answer)
    async with running(app, settings, workers=5, max_attempts=2, **QUICKLY):
        for number, text in enumerate(["good", "good", "bad", "good", "good"]):
            await app.put(text, sender=str(number), message_id=f"{number}")
        ended = {one.message_id: one for one in await finished(app.store, 5, queue="inbox")}
    assert {id: (one.outcome, one.attempts) for id, one in ended.items()} == {
        "0": ("completed", 1),
        "1": ("completed", 1),
        "2": ("dead", 2),
        "3": ("completed", 1),
        "4": ("completed", 1),
    }
    error = ended["2"].last_error
    assert error is not None
    assert any(word in error for word in ("JSON", "attribute", "answer")), error
    assert len(error) < 300


@both_engines
async def test_any_text_can_be_said(settings: Settings) -> None:
    odd = "nul \x00, half a pair \ud800, 🦀, " + "long " * 10_000
    app = AgentHarness(lambda turn: odd)
    async with running(app, settings):
        await app.put("hi")
        [ended] = await finished(app.store, queue="inbox")
        [response] = await app.responses("api")
    assert ended.outcome == "completed"
    assert response.event["message"].endswith("long ")
    assert "🦀" in response.event["message"]


async def test_an_error_with_any_text_is_kept(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    # pytest-xdist cannot send half a pair in the captured log of a test: it ends the whole run.
    caplog.set_level("CRITICAL", "holdfast")

    async def fail(turn: Turn) -> Answer:
        raise ValueError("nul \x00, half a pair \ud800")

    app = AgentHarness(fail)
    async with running(app, settings, max_attempts=1):
        await app.put("hi")
        [ended] = await finished(app.store)
    assert ended.outcome == "dead"
    assert (ended.last_error or "").startswith("ValueError: nul")


async def test_a_hung_agent_is_given_up_after_its_time_limit(settings: Settings) -> None:
    cancelled = asyncio.Event()

    async def hang(turn: Turn) -> Answer:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return None

    app = AgentHarness()
    app.add("slow", hang, timeout=timedelta(milliseconds=50), max_attempts=1)
    async with running(app, settings):
        await app.put("hi")
        [ended] = await finished(app.store)
    assert cancelled.is_set()
    assert (ended.outcome, ended.error_class) == ("dead", "timeout")
    assert ended.last_error == "no answer within 0.05 s"


async def test_an_agent_s_own_time_out_is_its_own_error(settings: Settings) -> None:
    async def answer(turn: Turn) -> Answer:
        raise TimeoutError("the model did not reply")

    app = AgentHarness(answer)
    async with running(app, settings, max_attempts=1):
        await app.put("hi")
        [ended] = await finished(app.store)
    assert ended.last_error == "TimeoutError: the model did not reply"


async def test_a_plain_function_holds_up_nobody(settings: Settings) -> None:
    def answer(turn: Turn) -> Answer:
        if turn.text == "slow":
            give_up_at = time.monotonic() + 20
            while not released.is_set():
                assert time.monotonic() < give_up_at
                time.sleep(0.005)
        return turn.text

    released = asyncio.Event()
    app = AgentHarness(answer)
    async with running(app, settings):
        await app.put("slow", sender="one")
        await app.put("quick", sender="two")
        await until(lambda: app.responses("api"))
        released.set()
        await finished(app.store, 2, queue="inbox")
        assert [one.event["message"] for one in await app.responses("api")] == ["quick", "slow"]


async def test_an_event_for_an_agent_that_is_gone_waits(settings: Settings) -> None:
    app = AgentHarness(lambda turn: "here")
    async with running(app, settings):
        await app.store.put([NewEvent(event={}, target="gone")])
        await app.put("hi")
        await finished(app.store, queue="inbox")
        [left] = await app.store.waiting("inbox", "gone")
        assert left.attempts == 0
        assert await app.store.dead(Filter()) == []


async def test_an_agent_without_a_sign_of_work_is_ended(settings: Settings) -> None:
    async def hang(turn: Turn) -> Answer:
        await asyncio.Event().wait()
        return None

    app = AgentHarness()
    app.add("still", hang, idle=timedelta(milliseconds=50), max_attempts=1)
    async with running(app, settings):
        await app.put("hi")
        [ended] = await finished(app.store)
    assert (ended.outcome, ended.error_class) == ("dead", "idle")
    assert ended.last_error == "no sign of work for 0.05 s"


async def test_signs_of_work_put_off_the_idle_limit_but_not_the_total_one(
    settings: Settings,
) -> None:
    async def busy(turn: Turn) -> Answer:
        while True:
            turn.progress()
            await asyncio.sleep(0.01)

    app = AgentHarness()
    app.add("busy", busy, max_attempts=1, idle=timedelta(seconds=2), timeout=timedelta(seconds=3))
    async with running(app, settings):
        await app.put("hi")
        [ended] = await finished(app.store)
    assert (ended.outcome, ended.error_class) == ("dead", "timeout")
