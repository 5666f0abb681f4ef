"""The memory of a language model."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from tests.agents.playing import With, app_of, instructions, send_all, text


class Notes:
    """A memory on a sheet of paper."""

    relevant = ("ann likes tea",)

    def __init__(self) -> None:
        self.observed: list[str] = []

    async def search(self, query: str, *, max_results: int = 5) -> list[str]:
        return [f"about {query}"]

    async def recall(self, *, limit: int = 20) -> list[str]:
        return []

    def observe(self, content: str, *, about: str = "USER") -> str:
        self.observed.append(content)
        return "obs_1"


async def test_an_agent_with_memory_is_reminded_and_may_look_and_observe() -> None:
    notes = Notes()

    def play(messages: list[ModelMessage], info: AgentInfo) -> Any:
        returned = [
            str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)
        ]
        if returned:
            return " / ".join(returned)
        assert "- ann likes tea" in instructions(messages)
        calls = [
            ("memory_search", {"query": "tea"}),
            ("memory_recall", {}),
            ("observe", {"content": "ann is here"}),
        ]
        return ModelResponse(parts=[ToolCallPart(name, given) for name, given in calls])

    app = app_of(play)
    app.agents["coder"] = With(app.agents["coder"], lambda turn: setattr(turn, "memory", notes))
    [outcome] = await send_all(app, "hello")
    assert text(outcome) == "about tea / nothing is known of it / noted"
    assert notes.observed == ["ann is here"]


async def test_an_agent_without_memory_has_no_such_tools() -> None:
    [outcome] = await send_all(app_of(lambda _, info: f"{len(info.function_tools)} tools"), "hello")
    assert text(outcome) == "0 tools"
