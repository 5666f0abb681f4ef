"""Models by name ("openai:gpt-…", "anthropic:claude-…"), and scripted models for tests."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers import Provider, infer_provider_class

from holdfast.errors import HoldfastError
from holdfast.settings.environment import variable
from holdfast.settings.providers import Provider as ProviderTable
from holdfast.telemetry.redaction import hide

TEST = "test"
KEY_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]{0,60}_API_KEY\b")
ScriptedReply = str | ModelResponse
Script = Callable[[list[ModelMessage], AgentInfo], ScriptedReply | Awaitable[ScriptedReply]]
"""Plays a model: takes the messages so far and the tools, returns a text or tool calls."""


def model_of(name: str, providers: Mapping[str, ProviderTable] | None = None) -> Model:
    """Return the model of a name. Raises HoldfastError if its package or its key is missing."""
    if name == TEST:
        return TestModel()
    provider, colon, model = name.partition(":")
    if not (provider and colon and model):
        raise HoldfastError(
            f'a model is named "provider:model", as in "openai:gpt-5", not {name!r}'
        )
    table = (providers or {}).get(provider, ProviderTable())
    kind = table.kind or provider
    try:
        return infer_model(f"{kind}:{model}", lambda _: _provider(provider, kind, table))
    except ImportError as error:
        raise HoldfastError(
            f"the provider {provider!r} needs a package: {_one_line(error)}"
        ) from error
    except (UserError, ValueError) as error:
        raise HoldfastError(f"the model {name!r} cannot be used: {_reason(error)}") from error


def scripted(script: Script, name: str = "script") -> Model:
    """Return a model that is played by a function. It streams like a real one."""

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        reply = script(messages, info)
        reply = await reply if inspect.isawaitable(reply) else reply
        response = ModelResponse(parts=[TextPart(reply)]) if isinstance(reply, str) else reply
        # Yield empty texts, too: a script may want to give an empty answer.
        for number, part in enumerate(response.parts):
            if isinstance(part, TextPart):
                yield part.content
            elif isinstance(part, ToolCallPart):
                call = DeltaToolCall(
                    part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id
                )
                yield {number: call}

    return FunctionModel(stream_function=stream, model_name=name)


def _provider(name: str, kind: str, table: ProviderTable) -> Provider[Any]:
    given: dict[str, str] = {"base_url": table.base_url} if table.base_url else {}
    if table.key_variable:
        key = variable(table.key_variable)
        if not key:
            raise HoldfastError(
                f"the key of the provider {name!r} is missing: {table.key_variable} is not set"
            )
        hide(key)
        given["api_key"] = key
    try:
        return infer_provider_class(kind)(**given)
    except TypeError as error:
        raise HoldfastError(
            f"the provider {name!r} takes no {' or '.join(given)}: {_one_line(error)}"
        ) from error


def _reason(error: UserError | ValueError) -> str:
    """Return the variable to set if a key is missing, else the error; drop advice about code."""
    key = KEY_VARIABLE.search(str(error))
    return f"set {key[0]}, or {key[0]}_FILE to the path of its file" if key else _one_line(error)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
