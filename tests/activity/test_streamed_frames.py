"""Frames of steps and texts: put together, they are the answer, after any number of attempts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from holdfast import AgentHarness, Reply, Retry, Turn
from holdfast.agents.base import Answer
from holdfast.chat import ChatStore
from holdfast.message import Payload
from holdfast.settings import Settings
from holdfast.store.activity import with_deltas
from tests.steps import both_engines, finished, running

QUICKLY: dict[str, Any] = {
    "retry_first": timedelta(milliseconds=5),
    "retry_most": timedelta(milliseconds=10),
}
AGAIN = Retry("again", timedelta(0))


@pytest_asyncio.fixture(autouse=True)
async def there_was_an_api(store: ChatStore) -> None:
    """Else nothing is written: nobody could read it."""
    await store.set_setting("activity", True)


async def frames_of(store: ChatStore, message_id: str) -> list[Payload]:
    frames = [frame for row in await store.activity(0) for frame in row.frames]
    return [frame for frame in frames if frame.get("messageId") == message_id]


def put_together(frames: list[Payload]) -> str:
    """Return the text that a reader sees at the end."""
    text = ""
    for frame in frames:
        if frame["type"] == "response_reset":
            text = ""
        elif frame["type"] == "response_delta":
            assert frame["offset"] == len(text)
            text += frame["text"]
    return text


def types(frames: list[Payload]) -> list[str]:
    return [frame["type"] for frame in frames]


async def _flush(turn: Turn) -> None:
    assert turn.journal is not None
    await turn.journal.stream.flush()


async def streaming(turn: Turn) -> Answer:
    """Say the same in two attempts, and something else in the third."""
    await turn.write("Looking. ")
    await turn.step("look", int)
    await _flush(turn)
    await turn.write("Half 🦀" if turn.attempt < 3 else "All")
    await _flush(turn)
    if turn.attempt < 3:
        return AGAIN
    await turn.write(" of it.")
    return None


@both_engines
async def test_a_reader_sees_one_answer_after_several_attempts(
    store: ChatStore, settings: Settings
) -> None:
    async with running(AgentHarness(streaming), settings, **QUICKLY) as app:
        await app.put("hi", message_id="m")
        await finished(store)
        frames = await frames_of(store, "m")
        [response] = await app.responses("api")
    assert put_together(frames) == response.event["message"] == "Looking. All of it."
    assert types(frames) == [
        "message_received",
        "agent_routed",
        "chain_step_start",
        "step_start",
        "step_done",
        "response_delta",
        "response_delta",
        "message_failed",
        "chain_step_start",
        "message_failed",
        "chain_step_start",
        "response_reset",
        "response_delta",
        "response_delta",
        "chain_step_done",
        "response_ready",
    ]


@both_engines
async def test_an_answer_that_was_not_streamed_is_one_delta(
    store: ChatStore, settings: Settings
) -> None:
    app = AgentHarness(lambda turn: "[@nobody: hi] there")
    async with running(app, settings):
        await app.put("hi", message_id="m")
        await finished(store)
        frames = await frames_of(store, "m")
    assert put_together(frames) == "[@nobody: hi] there"
    assert types(frames)[-3:] == ["chain_step_done", "response_delta", "response_ready"]


async def test_the_delta_of_an_unstreamed_answer_has_the_text_of_the_response(
    store: ChatStore, settings: Settings
) -> None:
    app = AgentHarness(default="lead")
    app.add("lead", lambda turn: "I ask. [@mate: look] Wait.")
    app.add("mate", lambda turn: Reply("found", metadata={"a": 1}))
    app.team("t", agents=["lead", "mate"], leader="lead")
    async with running(app, settings):
        await app.put("hi", message_id="m")
        await finished(store, 2)
        frames = await frames_of(store, "m")
        internal = [frame for row in await store.activity(0) for frame in row.frames]
    assert put_together(frames) == "I ask. Wait."
    assert put_together([one for one in internal if one.get("agent") == "mate"]) == "found"


async def test_listeners_hear_steps_and_texts(store: ChatStore, settings: Settings) -> None:
    app = AgentHarness(streaming)
    frames: list[Payload] = []
    for kind in ("step_start", "step_done", "response_delta", "response_reset", "response_ready"):
        app.on(kind)(frames.append)
    async with running(app, settings, **QUICKLY):
        await app.put("hi", message_id="m")
        await finished(store)
    assert put_together(frames) == "Looking. All of it."
    assert types(frames)[:2] == ["step_start", "step_done"]
    assert frames[0]["key"] == "look"


@pytest.mark.parametrize(
    ("frames", "expanded"),
    [
        ([], []),
        (
            [{"type": "chain_step_done", "response": "hi"}, {"type": "response_ready"}],
            ["chain_step_done", "response_delta", "response_ready"],
        ),
        (
            [{"type": "chain_step_done", "response": ""}, {"type": "response_ready"}],
            ["chain_step_done", "response_ready"],
        ),
        (
            [
                {"type": "chain_step_done", "response": "hi"},
                {"type": "response_ready", "streamed": True},
            ],
            ["chain_step_done", "response_ready"],
        ),
        (
            [
                {"type": "chain_step_done", "response": "hi"},
                {"type": "response_ready"},
                {"type": "response_ready"},
            ],
            ["chain_step_done", "response_delta", "response_ready", "response_ready"],
        ),
    ],
)
def test_a_delta_is_derived_only_where_no_frame_has_shown_the_text(
    frames: list[Payload], expanded: list[str]
) -> None:
    assert types(list(with_deltas(frames))) == expanded
