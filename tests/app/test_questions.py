"""Turns that ask people and wait for the answer."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.agents.turn import Turn
from holdfast.agents.waits import _question
from holdfast.api.progress import waiting_for
from holdfast.app import AgentHarness
from holdfast.errors import StepError
from holdfast.settings import Settings
from holdfast.store.chain import find_message, read_chain
from tests.steps import both_engines, running, until


@both_engines
async def test_a_turn_asks_with_a_prompt_and_options(settings: Settings) -> None:
    app = AgentHarness(default="asker")

    @app.agent("asker")
    async def asker(turn: Turn) -> str:
        return f"got {await turn.signal('ok', prompt='Send it?', options=['yes', 'no'])}"

    async with running(app, settings):
        id_ = await app.put("hello")
        assert id_ is not None

        async def waits() -> Any:
            event = await find_message(app.store, id_)
            return event is not None and await waiting_for(app.store, event)

        found = await until(waits)
        assert (found["signal"], found["prompt"]) == ("ok", "Send it?")
        assert [one["label"] for one in found["options"]] == ["yes", "no"]
        event = await find_message(app.store, id_)
        assert event is not None
        await app.store.signal(event.id, "ok", "yes")

        async def answered() -> Any:
            chain = await read_chain(app.store, id_)
            return chain is not None and [one.event["message"] for one in chain.responses]

        assert await until(answered) == ["got yes"]


def test_a_question_is_bounded_and_plain_json() -> None:
    assert _question("ok", None, {}) is None
    with pytest.raises(StepError, match="asks with over"):
        _question("ok", "x" * 30_000, {})
    with pytest.raises(StepError, match="not JSON"):
        _question("ok", "x", {"a": object()})
