"""Protocols of model providers: their streams, refusals and requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

Object = dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """An error, as a provider gives it."""

    status: int
    code: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: Object


ModelOutput = str | Call


class Dialect(Protocol):
    """One provider's protocol."""

    kind: str
    path: str
    base: str
    """Path that belongs to the base address of a client."""

    def stream(self, output: ModelOutput) -> Iterator[Object]:
        """The data of each event."""

    def refusal(self, refusal: Refusal) -> Object:
        """The body of an error."""

    def lines(self, request: Object) -> list[tuple[str, str]]:
        """Return role and text of the messages so far, without the system prompt."""

    def system(self, request: Object) -> str:
        """The system's words."""

    def result(self, request: Object) -> str:
        """Return the result of the last tool call."""

    def tools(self, request: Object) -> list[str]:
        """Names of the tools."""


class OpenAiChat:
    """Chat completions, which many others speak, too."""

    kind, path, base = "openai-chat", "/v1/chat/completions", "/v1"

    def stream(self, output: ModelOutput) -> Iterator[Object]:
        if isinstance(output, Call):
            function = {"name": output.name, "arguments": json.dumps(output.arguments)}
            call = {"index": 0, "id": "call_1", "type": "function", "function": function}
            yield self._chunk({"role": "assistant", "tool_calls": [call]})
        else:
            for word in output.split(" "):
                yield self._chunk({"role": "assistant", "content": f"{word} "})
        yield self._chunk({}, "tool_calls" if isinstance(output, Call) else "stop")
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        yield self._chunk({}) | {"choices": [], "usage": usage}

    def _chunk(self, delta: Object, finish: str | None = None) -> Object:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        about = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "fake",
        }
        return about | {"choices": [choice]}

    def refusal(self, refusal: Refusal) -> Object:
        return {
            "error": {
                "message": refusal.message,
                "type": "error",
                "param": None,
                "code": refusal.code,
            }
        }

    def lines(self, request: Object) -> list[tuple[str, str]]:
        return [
            (line["role"], line["content"])
            for line in request["messages"]
            if line["role"] != "system"
        ]

    def system(self, request: Object) -> str:
        return str(request["messages"][0]["content"])

    def result(self, request: Object) -> str:
        return str(request["messages"][-1]["content"])

    def tools(self, request: Object) -> list[str]:
        return [tool["function"]["name"] for tool in request["tools"]]


class OpenAi:
    """OpenAI's Responses API."""

    kind, path, base = "openai", "/v1/responses", "/v1"

    def stream(self, output: ModelOutput) -> Iterator[Object]:
        at = {"output_index": 0}
        yield {"type": "response.created", "response": self._response("in_progress")}
        item: Object
        if isinstance(output, Call):
            text = json.dumps(output.arguments)
            item = {"type": "function_call", "id": "fc_1", "call_id": "call_1"}
            item |= {"name": output.name, "arguments": ""}
            added = item | {"status": "in_progress"}
            yield {"type": "response.output_item.added", "item": added, **at}
            arguments = {"item_id": "fc_1", **at}
            yield {"type": "response.function_call_arguments.delta", "delta": text, **arguments}
            yield {"type": "response.function_call_arguments.done", "arguments": text, **arguments}
            item |= {"arguments": text, "status": "completed"}
        else:
            part = {"type": "output_text", "text": "", "annotations": []}
            item = {"type": "message", "id": "msg_1", "role": "assistant"}
            item |= {"status": "in_progress", "content": []}
            of = {"item_id": "msg_1", "content_index": 0, **at}
            yield {"type": "response.output_item.added", "item": item, **at}
            yield {"type": "response.content_part.added", "part": part, **of}
            for word in output.split(" "):
                delta = {"delta": f"{word} ", "logprobs": []}
                yield {"type": "response.output_text.delta", **delta, **of}
            yield {"type": "response.output_text.done", "text": output, "logprobs": [], **of}
            item = item | {"status": "completed", "content": [part | {"text": output}]}
        yield {"type": "response.output_item.done", "item": item, **at}
        usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
        details = {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        ended = self._response("completed") | {"output": [item], "usage": usage | details}
        yield {"type": "response.completed", "response": ended}

    def _response(self, status: str) -> Object:
        about = {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": "fake",
            "status": status,
        }
        return about | {
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }

    def refusal(self, refusal: Refusal) -> Object:
        return OpenAiChat().refusal(refusal)

    def lines(self, request: Object) -> list[tuple[str, str]]:
        return [
            (line["role"], _text(line["content"]))
            for line in request["input"]
            if line["role"] != "system"
        ]

    def system(self, request: Object) -> str:
        return str(request["instructions"])

    def result(self, request: Object) -> str:
        return str(request["input"][-1]["output"])

    def tools(self, request: Object) -> list[str]:
        return [tool["name"] for tool in request["tools"]]


class Anthropic:
    """Anthropic's Messages API."""

    kind, path, base = "anthropic", "/v1/messages", ""

    def stream(self, output: ModelOutput) -> Iterator[Object]:
        about = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "fake",
            "content": [],
        }
        usage = {"input_tokens": 11, "output_tokens": 1}
        ends = {"stop_reason": None, "stop_sequence": None}
        yield {"type": "message_start", "message": about | ends | {"usage": usage}}
        if isinstance(output, Call):
            block: Object = {"type": "tool_use", "id": "toolu_1", "name": output.name, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(output.arguments)}]
        else:
            block = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": f"{word} "} for word in output.split(" ")]
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        reason = "tool_use" if isinstance(output, Call) else "end_turn"
        yield {
            "type": "message_delta",
            "delta": ends | {"stop_reason": reason},
            "usage": {"output_tokens": 7},
        }
        yield {"type": "message_stop"}

    def refusal(self, refusal: Refusal) -> Object:
        return {"type": "error", "error": {"type": refusal.code, "message": refusal.message}}

    def lines(self, request: Object) -> list[tuple[str, str]]:
        return [(line["role"], _text(line["content"])) for line in request["messages"]]

    def system(self, request: Object) -> str:
        return _text(request["system"])

    def result(self, request: Object) -> str:
        return _text(request["messages"][-1]["content"][-1]["content"])

    def tools(self, request: Object) -> list[str]:
        return [tool["name"] for tool in request["tools"]]


def _text(content: str | list[Object]) -> str:
    """A text may come as its parts."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


DIALECTS: tuple[Dialect, ...] = (OpenAiChat(), OpenAi(), Anthropic())
