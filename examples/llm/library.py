"""A tool for a language model, and a script that plays the model."""

from __future__ import annotations

from pydantic_ai import RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo

from holdfast.agents.llm import Context

SHELVES = {"moby dick": "A3", "emma": "B1"}


async def find_book(context: RunContext[Context], title: str) -> str:
    """Say on which shelf a book stands."""
    context.deps.turn.metadata["looked_up"] = title
    shelf = SHELVES.get(title.lower())
    return f"{title} stands on shelf {shelf}" if shelf else f"there is no {title} here"


def play(messages: list[ModelMessage], info: AgentInfo) -> str | ModelResponse:
    """Treats every message as a title, looks it up, and repeats what the tool says."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return f"{last.content}."
    assert isinstance(last, UserPromptPart)
    return ModelResponse(parts=[ToolCallPart("find_book", {"title": str(last.content)})])
