"""LlmAgent: a language model with prompt, history and tools, one streamed run per turn."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from datetime import timedelta
from types import NoneType
from typing import Any, ClassVar

from pydantic_ai import Agent as Runner
from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import RunUsage, UsageLimits

from holdfast.agents.base import NO_ANSWER, Answer, prompt_of
from holdfast.agents.llm.context import App, Context, Reminder
from holdfast.agents.llm.durability import HoldfastDurability
from holdfast.agents.llm.history import history
from holdfast.agents.llm.memory import TOOLS, read_memories
from holdfast.agents.llm.prompt import Prompt
from holdfast.agents.llm.schedules import schedule_tools
from holdfast.agents.turn import Turn
from holdfast.errors import HoldfastError
from holdfast.queue.outcome import Dead, Retry, trace_of
from holdfast.settings.agents import HISTORY_TOKENS, LLM_POLICY, MAX_REQUESTS
from holdfast.telemetry import count_tokens, token_counts

SETTINGS = ModelSettings(max_retries=0)
"""The queue retries a failed turn. A client that retries by itself would hide failures."""


class LlmAgent:
    """Works each turn with one run of a model, which may call tools."""

    kind = "llm"
    default_policy: ClassVar[Mapping[str, Any]] = LLM_POLICY

    def __init__(
        self,
        model: Model,
        *,
        prompt: Prompt | None = None,
        tools: Sequence[Callable[..., Any]] = (),
        toolsets: Sequence[AbstractToolset[Context]] = (),
        reminders: Sequence[Reminder] = (),
        history_tokens: int = HISTORY_TOKENS,
        max_requests: int = MAX_REQUESTS,
        stream: bool = True,
        schedules: int = 0,
    ) -> None:
        self._model = model
        self._stream = stream
        own_tools = schedule_tools(schedules) if schedules else []
        self._runner = Runner(
            model,
            # None allows an empty answer; without it pydantic-ai would ask the model again.
            output_type=[str, NoneType],
            deps_type=Context,
            tools=[*TOOLS, *own_tools, *tools],
            toolsets=toolsets,
            model_settings=SETTINGS,
            capabilities=[
                HoldfastDurability(name="llm", stream=stream, event_stream_handler=_report_progress)
            ],
        )
        self._prompt = prompt or Prompt()
        self._reminders: list[Reminder] = [read_memories, *reminders]
        self._history_tokens = history_tokens
        self._limits = UsageLimits(request_limit=max_requests)
        self._app: App | None = None

    @property
    def provider(self) -> str:
        """The provider of the model."""
        return self._model.system

    def join(self, app: App) -> None:
        """Remember the app that this agent was added to."""
        self._app = app

    def remind(self, reminder: Reminder) -> None:
        """Add a text to the system prompt of every turn."""
        self._reminders.append(reminder)

    async def answer(self, turn: Turn) -> Answer:
        if self._app is None:
            raise HoldfastError("an LlmAgent works in an app: add it with app.add(…)")
        try:
            return await self._run(Context(turn, self._app))
        except ModelQuotaExceededError as error:
            return _retry(error)
        except (ModelRequestRejectedError, UserError, UsageLimitExceeded) as error:
            # A wrong key, an unknown model or a refused request: trying again changes nothing.
            return Dead(_one_line(error), _class_name(error), trace_of(error))
        except AgentRunError as error:
            return _retry(error)

    async def _run(self, context: Context) -> str | None:
        turn = context.turn
        instructions = [
            await self._prompt.text(context),
            *[await remind(context) for remind in self._reminders],
        ]
        # Concurrent turns share the model's connections. The last one closes them.
        async with self._model:
            result = await self._runner.run(
                prompt_of(turn),
                deps=context,
                instructions="\n\n".join(text for text in instructions if text) or None,
                message_history=await history(context.app.store, turn, self._history_tokens),
                usage_limits=self._limits,
            )
        self._count(turn, result.usage)
        if self._stream:
            return None if turn.written_text else NO_ANSWER
        return (result.output or "").strip() or NO_ANSWER

    def _count(self, turn: Turn, usage: RunUsage) -> None:
        name = self._model.model_name
        counts = token_counts(
            {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        )
        turn.metadata["usage"] = {"model": name, "requests": usage.requests, **counts}
        count_tokens(turn.agent, name, counts)


async def _report_progress(context: RunContext[Context], events: AsyncIterable[object]) -> None:
    async for _ in events:
        context.deps.turn.progress()


def _retry(error: AgentRunError) -> Retry:
    wait = error.retry_after if isinstance(error, ModelAPIError) else None
    return Retry(
        _one_line(error),
        None if wait is None else timedelta(seconds=wait),
        _class_name(error),
        trace_of(error),
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _class_name(error: Exception) -> str:
    """Return the name of the first public class of an error."""
    return next(kind.__name__ for kind in type(error).__mro__ if not kind.__name__.startswith("_"))
