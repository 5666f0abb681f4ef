"""Earlier messages of a conversation, as many as fit a token budget."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from holdfast.agents.history import pair_answers
from holdfast.agents.turn import Turn
from holdfast.chat import AgentMessage, ChatStore

PAGE = 50
BYTES_PER_TOKEN = 4
"""A rough estimate without the model's own tokenizer. For most scripts it counts too much."""


async def history(store: ChatStore, turn: Turn, budget: int) -> list[ModelMessage]:
    """Return the newest lines that fit the budget, oldest first, starting with a user's line."""
    lines = await _newest_lines(store, turn, budget)
    while lines and lines[0].role != "user":
        lines.pop(0)
    senders = {line.sender for line in lines if line.role == "user"} | {turn.sender}
    return [_message(line, named=len(senders) > 1) for line in lines]


async def _newest_lines(store: ChatStore, turn: Turn, budget: int) -> list[AgentMessage]:
    lines: list[AgentMessage] = []
    before_id: int | None = None
    while budget > 0:
        page = await store.agent_messages(
            turn.agent,
            conversation=turn.conversation,
            waiting=False,
            limit=PAGE,
            before_id=before_id,
        )
        for line in page:
            budget -= tokens(line.content)
            if budget < 0:
                break
            lines.append(line)
        if len(page) < PAGE:
            break
        before_id = page[-1].id
    return pair_answers(lines)


def tokens(text: str) -> int:
    """Estimate the number of tokens of a text."""
    return len(text.encode(errors="replace")) // BYTES_PER_TOKEN + 1


def _message(line: AgentMessage, *, named: bool) -> ModelMessage:
    if line.role == "user":
        return ModelRequest(
            parts=[UserPromptPart(f"{line.sender}: {line.content}" if named else line.content)]
        )
    return ModelResponse(parts=[TextPart(line.content)])
