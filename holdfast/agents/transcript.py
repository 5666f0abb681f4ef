"""Reads the output of a command-line agent: the final text of streamed events, or plain text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.telemetry import token_counts

Object = dict[str, Any]


@dataclass(slots=True)
class Transcript:
    """The answer of a run, the error it reported, and the tokens it used, if it says so."""

    text: str = ""
    error: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    is_final: bool = False
    """Whether `text` is final. Later texts do not replace a final one."""

    def set_text(self, text: object, *, is_final: bool = False) -> None:
        if isinstance(text, str) and (is_final or not self.is_final):
            self.text, self.is_final = text.strip(), is_final

    def add_usage(self, usage: object) -> None:
        counts = usage if isinstance(usage, dict) else {}
        self.usage |= token_counts(
            {name: counts.get(name) for name in ("input_tokens", "output_tokens")}
        )


def transcript_of(output: str) -> Transcript:
    """Read the output of a run.

    Lines that are not a known event are skipped. Without any known event, the output is the
    answer."""
    transcript = Transcript()
    events = [event for event in _objects(output) if _read_event(transcript, event)]
    return transcript if events else Transcript(text=output.strip())


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


def _read_event(transcript: Transcript, event: Object) -> bool:
    """Add one event to the transcript. Returns whether its shape is known."""
    match event:
        # claude --output-format stream-json, or json
        case {"type": "result", "is_error": True, **rest}:
            transcript.error = str(
                rest.get("result") or rest.get("subtype") or "the agent reports an error"
            )
        case {"type": "result", "result": result, **rest}:
            transcript.set_text(result, is_final=True)
            transcript.add_usage(rest.get("usage"))
        case {"type": "assistant", "message": {"content": list(parts)}}:
            transcript.set_text("\n".join(part["text"] for part in parts if _is_text(part)) or None)
        case {"type": "system" | "user" | "stream_event" | "rate_limit_event"}:
            pass
        # codex exec --json
        case {"type": "item.completed", "item": {"type": "agent_message", "text": text}}:
            transcript.set_text(text)
        case {"type": "turn.completed", **rest}:
            transcript.add_usage(rest.get("usage"))
        case {"type": "turn.failed", "error": {"message": message}} | {
            "type": "error",
            "message": message,
        }:
            transcript.error = str(message)
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
