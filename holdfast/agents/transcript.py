"""What a command-line agent said: the final text among streamed events, or its output as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.telemetry import token_counts

Object = dict[str, Any]


@dataclass(slots=True)
class Transcript:
    """The answer, the error that the agent itself tells of, and the tokens it used, as far as it says."""

    text: str = ""
    error: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    is_final: bool = False
    """A final text stands, whatever is said after it."""

    def say(self, text: object, *, is_final: bool = False) -> None:
        if isinstance(text, str) and (is_final or not self.is_final):
            self.text, self.is_final = text.strip(), is_final

    def count(self, usage: object) -> None:
        counts = usage if isinstance(usage, dict) else {}
        self.usage |= token_counts(
            {name: counts.get(name) for name in ("input_tokens", "output_tokens")}
        )


def transcript_of(output: str) -> Transcript:
    """Lines that are no known events are ignored among such events, and are the answer where there are none."""
    heard = Transcript()
    events = [event for event in _objects(output) if _hear(heard, event)]
    return heard if events else Transcript(text=output.strip())


def _objects(output: str) -> Iterator[Object]:
    for line in output.splitlines():
        if line.lstrip().startswith(("{", "[")):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            yield from (
                item
                for item in (found if isinstance(found, list) else [found])
                if isinstance(item, dict)
            )


def _hear(heard: Transcript, event: Object) -> bool:
    """Whether the event is of a known shape."""
    match event:
        # claude --output-format stream-json, or json
        case {"type": "result", "is_error": True, **rest}:
            heard.error = str(
                rest.get("result") or rest.get("subtype") or "the agent reports an error"
            )
        case {"type": "result", "result": result, **rest}:
            heard.say(result, is_final=True)
            heard.count(rest.get("usage"))
        case {"type": "assistant", "message": {"content": list(parts)}}:
            heard.say("\n".join(part["text"] for part in parts if _is_text(part)) or None)
        case {"type": "system" | "user" | "stream_event" | "rate_limit_event"}:
            pass
        # codex exec --json
        case {"type": "item.completed", "item": {"type": "agent_message", "text": text}}:
            heard.say(text)
        case {"type": "turn.completed", **rest}:
            heard.count(rest.get("usage"))
        case {"type": "turn.failed", "error": {"message": message}} | {
            "type": "error",
            "message": message,
        }:
            heard.error = str(message)
        case {
            "type": "thread.started"
            | "turn.started"
            | "item.started"
            | "item.updated"
            | "item.completed"
        }:
            pass
        case _:
            return False
    return True


def _is_text(part: object) -> bool:
    return (
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    )
