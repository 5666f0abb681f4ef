"""Scripts that play the language models of the team, so that the example needs no key."""

from __future__ import annotations

import json
import re

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo


def lead(messages: list[ModelMessage], info: AgentInfo) -> str | ModelResponse:
    """Notes wishes, and hands questions to the reader."""
    if isinstance(part := messages[-1].parts[-1], ToolReturnPart):
        return "I will keep that in mind."
    text = prompt_of(part)
    if text.startswith("I prefer "):
        return ModelResponse(parts=[ToolCallPart("observe", {"content": f"Prefers {text[9:]}"})])
    return f"I ask our reader. [@reader: {text}]"


def reader(messages: list[ModelMessage], info: AgentInfo) -> str | ModelResponse:
    """Searches the papers, and hands what was found to the writer."""
    if isinstance(part := messages[-1].parts[-1], ToolReturnPart):
        found = part.content if isinstance(part.content, list) else [part.content]
        return f"Papers found: {len(found)}. [@writer: {json.dumps(found)}]"
    question = prompt_of(part).splitlines()[-1]
    return ModelResponse(parts=[ToolCallPart("search", {"words": question})])


def writer(messages: list[ModelMessage], info: AgentInfo) -> str | ModelResponse:
    """Recalls how the person likes answers, and writes one from the findings."""
    if not isinstance(part := messages[-1].parts[-1], ToolReturnPart):
        return ModelResponse(parts=[ToolCallPart("memory_recall", {})])
    papers = json.loads(prompt_of(messages[-3].parts[-1]).splitlines()[-1])
    text = " ".join(line for paper in papers for line in paper.splitlines()[1:])
    if "one sentence" in str(part.content):
        text = re.split(r"(?<=\.) ", text)[0]
    return f"{text} ({', '.join(paper.partition(':')[0] for paper in papers)})"


def prompt_of(part: object) -> str:
    assert isinstance(part, UserPromptPart)
    return str(part.content)
