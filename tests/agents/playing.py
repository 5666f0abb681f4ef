"""Scripts that play a language model, and apps with one such agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from holdfast import AgentHarness, Done, Turn
from holdfast.agents.base import Agent, Answer
from holdfast.agents.llm import LlmAgent, scripted
from holdfast.queue.outcome import Outcome
from holdfast.routing.router import Address
from holdfast.testing.trial import Trial, trial

Play = Callable[[list[ModelMessage], AgentInfo], Any]


class Script:
    """Plays a model: gives its replies in order, by the responses so far, and counts requests."""

    def __init__(self, *replies: str | ModelResponse) -> None:
        self._replies = replies
        self.requests: list[list[ModelMessage]] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests.append(list(messages))
        number = sum(isinstance(message, ModelResponse) for message in messages)
        reply = self._replies[number]
        return ModelResponse(parts=[TextPart(reply)]) if isinstance(reply, str) else reply


def call(tool: str, **arguments: Any) -> ModelResponse:
    """Return a response that calls a tool."""
    return ModelResponse(parts=[ToolCallPart(tool, arguments)])


def app_of(play: Play, policy: dict[str, Any] | None = None, **given: Any) -> AgentHarness:
    app = AgentHarness()
    app.add("coder", LlmAgent(scripted(play), **given), **(policy or {}))
    return app


async def send_all(app: AgentHarness, *texts: str) -> list[Outcome]:
    async with trial(app) as at_work:
        return [await send(at_work, text) for text in texts]


async def send(at_work: Trial, text: str, sender: str = "ann") -> Outcome:
    await at_work.say(text, address=Address(sender=sender))
    [(_, outcome)] = await at_work.work()
    return outcome


def text(outcome: Outcome) -> str:
    assert isinstance(outcome, Done), outcome
    return str(outcome.emits[0].event["message"])


def prompt_text(messages: list[ModelMessage]) -> str:
    """Return all messages in one line."""
    return " | ".join(
        str(part.content)
        for message in messages
        for part in message.parts
        if hasattr(part, "content")
    )


def instructions(messages: list[ModelMessage]) -> str:
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    return last.instructions or ""


class With:
    """An agent whose turns are changed before it sees them."""

    def __init__(self, agent: Agent, change: Callable[[Turn], None]) -> None:
        self._agent = agent
        self._change = change

    async def answer(self, turn: Turn) -> Answer:
        self._change(turn)
        return await self._agent.answer(turn)
