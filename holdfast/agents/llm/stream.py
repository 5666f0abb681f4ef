"""Writes the text of model responses to the answer of a turn while it is generated."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Protocol

from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)

from holdfast.agents.turn import Turn

PARAGRAPH = "\n\n"
"""Written between the texts of two responses, such as before and after a tool call."""


class Writable(Protocol):
    """The answer of a turn."""

    @property
    def written_text(self) -> str: ...

    async def write(self, text: str, /) -> None: ...


class ResponseText:
    """Writes the text of one response, without the white space around it."""

    def __init__(self, turn: Writable) -> None:
        self._turn = turn
        self._held = ""
        """White space that is written only if more text follows."""
        self._begun = False

    async def write(self, text: str) -> None:
        text = self._held + text if self._begun else text.lstrip()
        kept = text.rstrip()
        self._held = text[len(kept) :] if self._begun or kept else ""
        if kept:
            gap = PARAGRAPH if not self._begun and self._turn.written_text else ""
            self._begun = True
            await self._turn.write(gap + kept)


async def write_events(
    turn: Turn, events: AsyncIterable[AgentStreamEvent]
) -> AsyncIterator[AgentStreamEvent]:
    """Pass on the events of a response and write its text."""
    text = ResponseText(turn)
    async for event in events:
        match event:
            case (
                PartStartEvent(part=TextPart(content=content))
                | PartDeltaEvent(delta=TextPartDelta(content_delta=content))
            ):
                await text.write(content)
        yield event


async def write_response(turn: Turn, response: ModelResponse) -> None:
    """Write the text of a recorded response, exactly as it was streamed."""
    await ResponseText(turn).write(
        "".join(part.content for part in response.parts if isinstance(part, TextPart))
    )
